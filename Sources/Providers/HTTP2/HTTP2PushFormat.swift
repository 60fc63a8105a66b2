// What APNs and FCM add to `HTTP2Sender`: where requests go, what they look like, what the answers mean.

internal import Runtime

/// One provider's way of asking and answering. A value; everything that changes is the sender's.
protocol HTTP2PushFormat {
  /// What stands before the token in `authorization`.
  var authorizationScheme: StaticString { get }
  /// The reason of a push that failed because the provider token was refused as too old and there is no other.
  var tokenRefusedReason: String { get }
  /// How often a request is sent again on the provider's word alone, before that becomes an outcome.
  var resendsMax: Int { get }
  /// A connection keeps to the key it saw first: new credentials need new connections.
  var bindsConnectionsToKeys: Bool { get }

  /// Where requests go. The first is connected to at the start, another when its first request comes.
  var endpoints: [HTTP2Endpoint] { get }
  /// The index of the endpoint a request goes to.
  func endpoint(of request: PushRequest) -> Int
  /// Why a request is not sent at all; nil for no reason.
  func objection(to request: PushRequest) -> String?
  /// Writes the head and returns the body.
  ///
  /// - Parameter loop: has the time, for whoever needs it.
  func write(
    _ request: PushRequest, authorization: [UInt8], loop: EventLoop, into head: inout HTTP2RequestHead
  ) -> [UInt8]
  /// Reads an answer: what to do, and what it says about the connection it came on.
  func read(
    _ response: borrowing HTTP2Message, clock: any GatewayClock
  ) -> (AnswerDisposition, HTTP2ConnectionPool.ExchangeEffect.Connection)
}

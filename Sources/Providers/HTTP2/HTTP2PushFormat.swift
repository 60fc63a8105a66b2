// What `HTTP2Sender` does not know of APNs, FCM and web push: endpoints, request format and meaning of answers.

internal import Runtime

/// The request and answer format of one provider. A value; the sender holds all mutable state.
protocol HTTP2PushFormat {
  /// The text before the token in the `authorization` field.
  var authorizationScheme: StaticString { get }
  /// The reason of a push that failed because the provider token was refused as too old and no other can be obtained.
  var tokenRefusedReason: String { get }
  /// Maximum number of times a request is sent again because of an answer. After that the answer becomes the outcome.
  var resendsMax: Int { get }
  /// A token that no device has, in the form of the provider's tokens. New credentials are tried with it, on connections of their own.
  /// Nil if new credentials are used without a trial, on the current connections.
  var madeUpToken: String? { get }

  /// The endpoints of the provider. The first is connected at the start, the others at their first request.
  var endpoints: [HTTP2Endpoint] { get }
  /// The index of the endpoint a request goes to.
  func endpoint(of request: PushRequest) -> Int
  /// Why a request cannot be sent at all; nil if it can.
  func objection(to request: PushRequest) -> String?
  /// Writes the head and returns the body.
  ///
  /// - Parameter loop: gives the current time.
  func write(
    _ request: PushRequest, authorization: [UInt8], loop: EventLoop, into head: inout HTTP2RequestHead
  ) -> [UInt8]
  /// Reads an answer. Returns what to do and what the answer says about its connection.
  func read(
    _ response: borrowing HTTP2Message, clock: any GatewayClock
  ) -> (AnswerDisposition, HTTP2ConnectionPool.ExchangeEffect.Connection)
}

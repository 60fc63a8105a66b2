// The request and answer format of FCM, for `HTTP2Sender`.

internal import Runtime

/// One project's messages.
struct FCMFormat: HTTP2PushFormat {
  var authorizationScheme: StaticString { "Bearer " }
  var tokenRefusedReason: String { "UNAUTHENTICATED" }
  var resendsMax: Int { 1 }
  /// FCM answers 400 INVALID_ARGUMENT if the access token may send to the project.
  var madeUpToken: String? { "none" }

  let endpoints: [HTTP2Endpoint]
  private let writer: FCMRequestWriter

  init(_ configuration: FCMConfiguration) {
    endpoints = [configuration.endpoint]
    writer = FCMRequestWriter(authority: configuration.endpoint.authority, projectID: configuration.projectID)
  }

  func endpoint(of request: PushRequest) -> Int { 0 }

  /// Always nil: FCM's answer says what is wrong with a message, and in which field.
  func objection(to request: PushRequest) -> String? { nil }

  func write(
    _ request: PushRequest, authorization: [UInt8], loop: EventLoop, into head: inout HTTP2RequestHead
  ) -> [UInt8] {
    writer.write(bearer: authorization, into: &head)
    return FCMRequestWriter.body(request, now: loop.now)
  }

  func read(
    _ response: borrowing HTTP2Message, clock: any GatewayClock
  ) -> (AnswerDisposition, HTTP2ConnectionPool.ExchangeEffect.Connection) {
    let disposition = FCMReasonTable.read(response, wallMilliseconds: clock.wallMilliseconds())
    return (disposition, disposition == .renewToken ? .unproven : .proven)
  }
}

// The request and answer format of APNs, for `HTTP2Sender`.

internal import PushModel
internal import Runtime

/// One app's topic in the two environments.
struct APNsFormat: HTTP2PushFormat {
  var authorizationScheme: StaticString { "bearer " }
  var tokenRefusedReason: String { "ExpiredProviderToken" }
  var resendsMax: Int { 2 }
  /// APNs answers 400 BadDeviceToken if it has accepted the provider token. Another key on the same connection would be refused with
  /// 403 UnrelatedKeyIdInToken.
  var madeUpToken: String? { String(repeating: "0", count: 64) }

  /// Production and sandbox. Most deployments never have a sandbox token.
  let endpoints: [HTTP2Endpoint]
  private let production: APNsRequestWriter
  private let sandbox: APNsRequestWriter

  init(_ configuration: APNsConfiguration) {
    endpoints = [configuration.production, configuration.sandbox]
    production = APNsRequestWriter(authority: configuration.production.authority, topic: configuration.topic)
    sandbox = APNsRequestWriter(authority: configuration.sandbox.authority, topic: configuration.topic)
  }

  func endpoint(of request: PushRequest) -> Int { request.environment == .sandbox ? 1 : 0 }

  func objection(to request: PushRequest) -> String? {
    APNsRequestWriter.objection(to: request)?.rawValue
  }

  func write(
    _ request: PushRequest, authorization: [UInt8], loop: EventLoop, into head: inout HTTP2RequestHead
  ) -> [UInt8] {
    let writer = request.environment == .sandbox ? sandbox : production
    writer.write(request, bearer: authorization, into: &head)
    return request.body
  }

  func read(
    _ response: borrowing HTTP2Message, clock: any GatewayClock
  ) -> (AnswerDisposition, HTTP2ConnectionPool.ExchangeEffect.Connection) {
    APNsReasonTable.read(response)
  }
}

// Tests of every answer of FCM, from the simulator over the network to its outcome.

import Runtime
import Simulators
import TestTime
import Testing

@testable import Providers

private let rows: [ReasonCode] = [
  row(400, "INVALID_ARGUMENT", .tokenInvalid(reason: "INVALID_ARGUMENT", since: nil), of: "FcmError naming the token"),
  ReasonCode(
    "400 INVALID_ARGUMENT FcmError naming another field",
    Fault(.answer(status: 400, reason: "INVALID_ARGUMENT", body: violation(of: "message.android.ttl"))),
    .outcome(.rejected(reason: "INVALID_ARGUMENT"), status: 400)),
  ReasonCode(
    "400 INVALID_ARGUMENT too large, without details", .reason("TOO_BIG"),
    .outcome(.rejected(reason: "INVALID_ARGUMENT"), status: 400)),
  ReasonCode(
    "400 INVALID_ARGUMENT saying in words that it is the token", .reason("INVALID_TOKEN"),
    .outcome(.tokenInvalid(reason: "INVALID_ARGUMENT", since: nil), status: 400)),
  row(401, "THIRD_PARTY_AUTH_ERROR", .rejected(reason: "THIRD_PARTY_AUTH_ERROR"), of: "FcmError"),
  // If it happens once, another access token is fetched, the push is sent again, and no attempt is counted.
  ReasonCode("401 UNAUTHENTICATED once", .reason("UNAUTHENTICATED"), count: 1, .accepted),
  row(401, "UNAUTHENTICATED", .unauthorized(reason: "UNAUTHENTICATED"), of: "always"),
  row(403, "SENDER_ID_MISMATCH", .tokenInvalid(reason: "SENDER_ID_MISMATCH", since: nil), of: "FcmError"),
  row(403, "PERMISSION_DENIED", .unauthorized(reason: "PERMISSION_DENIED"), of: "without FcmError"),
  row(404, "UNREGISTERED", .tokenInvalid(reason: "UNREGISTERED", since: nil), of: "FcmError"),
  row(404, "NOT_FOUND", .unauthorized(reason: "NOT_FOUND"), of: "without FcmError"),
  row(
    429, "QUOTA_EXCEEDED", .throttled(reason: "QUOTA_EXCEEDED", after: .seconds(60), isLaneWide: true),
    of: "FcmError, the project's rate"),
  ReasonCode(
    "429 QUOTA_EXCEEDED FcmError, the device's rate", .reason("QUOTA_EXCEEDED_DEVICE"),
    .outcome(.throttled(reason: "QUOTA_EXCEEDED", after: nil, isLaneWide: false), status: 429)),
  ReasonCode(
    "429 QUOTA_EXCEEDED FcmError, the device's rate with Retry-After",
    .reason("QUOTA_EXCEEDED_DEVICE", retryAfter: 5),
    .outcome(.throttled(reason: "QUOTA_EXCEEDED", after: .seconds(5), isLaneWide: false), status: 429)),
  row(
    429, "QUOTA_EXCEEDED", .throttled(reason: "QUOTA_EXCEEDED", after: .seconds(7), isLaneWide: true),
    of: "FcmError with Retry-After", retryAfter: 7),
  row(
    429, "RESOURCE_EXHAUSTED", .throttled(reason: "RESOURCE_EXHAUSTED", after: .seconds(60), isLaneWide: true),
    of: "without FcmError"),
  row(500, "INTERNAL", .unavailable(reason: "INTERNAL", after: nil), of: "FcmError"),
  row(503, "UNAVAILABLE", .unavailable(reason: "UNAVAILABLE", after: nil), of: "FcmError"),
  row(
    503, "UNAVAILABLE", .unavailable(reason: "UNAVAILABLE", after: .seconds(3)), of: "FcmError with Retry-After",
    retryAfter: 3),
  ReasonCode("502 HTML", Fault(.html), .outcome(.unavailable(reason: "HTTP502", after: nil), status: 502)),
  ReasonCode(
    "500 half a body", Fault(.malformed), .outcome(.unavailable(reason: "HTTP500", after: nil), status: 500)),
]

private func row(
  _ status: Int, _ code: String, _ outcome: PushOutcome, of what: String, retryAfter: Int? = nil
) -> ReasonCode {
  ReasonCode(
    "\(status) \(code) \(what)",
    Fault(.answer(status: status, reason: code, body: nil), retryAfter: retryAfter),
    .outcome(outcome, status: UInt16(status)))
}

private func violation(of field: String) -> String {
  """
  {"error":{"code":400,"status":"INVALID_ARGUMENT","message":"m","details":[
    {"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"INVALID_ARGUMENT"},
    {"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"\(field)","description":"d"}]}]}}
  """
}

/// Access tokens of the simulator's OAuth endpoint; a refused one is replaced however young it is.
private actor GrantedTokens: ProviderTokenSource {
  private let account: FCMServiceAccount
  private let caFile: String
  private let loop: EventLoop
  private var source: FCMTokenSource

  init(account: FCMServiceAccount, caFile: String, loop: EventLoop) {
    (self.account, self.caFile, self.loop) = (account, caFile, loop)
    source = FCMTokenSource(account: account, caFile: caFile, loop: loop)
  }

  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    if refused != nil { source = FCMTokenSource(account: account, caFile: caFile, loop: loop) }
    return try await source.token(replacing: nil)
  }
}

private func token(_ index: Int) -> String { "row-\(index)-android" }

@Suite(.simulators(.fcm, rows, token: token), .serialized, .timeLimit(.minutes(10)))
struct ReasonCodesFCMTests {
  @Test func `the table contains exactly the documented codes`() {
    let tested = rows.map { $0.name.split(separator: " ").prefix(2).joined(separator: " ") }
    let known = Set(FCMReasonTable.rows.map { "\($0.status) \($0.code)" })
    #expect(known == Set(tested).subtracting(["502 HTML", "500 half"]))
    #expect(
      known == [
        "400 INVALID_ARGUMENT", "401 THIRD_PARTY_AUTH_ERROR", "401 UNAUTHENTICATED", "403 SENDER_ID_MISMATCH",
        "403 PERMISSION_DENIED", "404 UNREGISTERED", "404 NOT_FOUND", "429 QUOTA_EXCEEDED", "429 RESOURCE_EXHAUSTED",
        "500 INTERNAL", "503 UNAVAILABLE",
      ])
  }

  @Test(arguments: rows.indices.map { RowIndex($0, rows) })
  func `every answer of FCM has its documented outcome`(index: RowIndex) async throws {
    let simulators = try #require(SimulatorsTrait.simulators)
    let account = try FCMServiceAccount.load(file: simulators.material.serviceAccountFile)
    let loop = EventLoop.paced("fcm-test")
    let endpoint = try HTTP2Endpoint(
      url: simulators.endpoints.fcm, tls: .client(caFile: simulators.material.authorityFile))
    var configuration = FCMConfiguration(projectID: account.projectID, endpoint: endpoint)
    configuration.pool.waitTimeout = .seconds(30)
    let provider = HTTP2Provider(
      configuration,
      tokens: GrantedTokens(account: account, caFile: simulators.material.authorityFile, loop: loop), loop: loop,
      logger: silent)
    rows[index.place].check(await provider.result(ofPushTo: token(index.place), body: #"{"callId":"c1"}"#))
  }
}

// Tests of every answer of FCM, from the simulator over the network to its outcome.

import Runtime
import Simulators
import TestTime
import Testing

@testable import Providers

private let rows: [ReasonCode] =
  FCMReasonRow.documented.compactMap(documented) + [
    // The simulator sends these with the details that decide.
    row(
      400, "INVALID_ARGUMENT", .tokenInvalid(reason: "INVALID_ARGUMENT", since: nil), of: "FcmError naming the token"),
    ReasonCode(
      "400 INVALID_ARGUMENT too large, without details", .reason("TOO_BIG"),
      .outcome(.rejected(reason: "INVALID_ARGUMENT"), status: 400)),
    ReasonCode(
      "400 INVALID_ARGUMENT saying in words that it is the token", .reason("INVALID_TOKEN"),
      .outcome(.tokenInvalid(reason: "INVALID_ARGUMENT", since: nil), status: 400)),
    row(
      429, "QUOTA_EXCEEDED", .throttled(reason: "QUOTA_EXCEEDED", after: .seconds(60), isLaneWide: true),
      of: "FcmError, the project's rate"),
    ReasonCode(
      "429 QUOTA_EXCEEDED FcmError, the device's rate", .reason("QUOTA_EXCEEDED_DEVICE"),
      .outcome(.throttled(reason: "QUOTA_EXCEEDED", after: nil, isLaneWide: false), status: 429)),
    row(401, "UNAUTHENTICATED", .unauthorized(reason: "UNAUTHENTICATED"), of: "always"),
    row(
      503, "UNAVAILABLE", .unavailable(reason: "UNAVAILABLE", after: .seconds(3)), of: "FcmError with Retry-After",
      retryAfter: 3),
    ReasonCode("502 HTML", Fault(.html), .outcome(.unavailable(reason: "HTTP502", after: nil), status: 502)),
    ReasonCode(
      "500 half a body", Fault(.malformed), .outcome(.unavailable(reason: "HTTP500", after: nil), status: 500)),
  ]

/// A documented code, as a push experiences it: another access token is fetched, the push is sent again, and no attempt is counted.
private func documented(_ row: FCMReasonRow) -> ReasonCode? {
  switch row.disposition {
  case nil: nil
  case .settle(let outcome, _)?:
    ReasonCode(
      "\(row.status) \(row.code)", Fault(.answer(status: Int(row.status), reason: row.code, body: nil)),
      .outcome(outcome, status: row.status))
  default: ReasonCode("\(row.status) \(row.code) once", .reason(row.code), count: 1, .accepted)
  }
}

private func row(
  _ status: Int, _ code: String, _ outcome: PushOutcome, of what: String, retryAfter: Int? = nil
) -> ReasonCode {
  ReasonCode(
    "\(status) \(code) \(what)",
    Fault(.answer(status: status, reason: code, body: nil), retryAfter: retryAfter),
    .outcome(outcome, status: UInt16(status)))
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

@Suite("FCM codes: over the network", .simulators(.fcm, rows, token: token), .serialized, .timeLimit(.minutes(10)))
struct ReasonCodesFCMTests {
  @Test func `every documented code is sent`() {
    let sent = Set(rows.map { $0.name.split(separator: " ").prefix(2).joined(separator: " ") })
    #expect(sent.isSuperset(of: FCMReasonRow.documented.map { "\($0.status) \($0.code)" }))
  }

  @Test(arguments: rows.indices.map { RowIndex($0, rows) })
  func `every answer of FCM has its documented outcome`(index: RowIndex) async throws {
    let simulators = try #require(SimulatorsTrait.simulators)
    let account = try FCMServiceAccount.load(file: simulators.material.serviceAccountFile)
    let loop = EventLoop.paced("fcm-test", with: [simulators.fcm.loop])
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

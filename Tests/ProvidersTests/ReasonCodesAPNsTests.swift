// Tests of every reason of APNs, from the simulator over the network to its outcome.

import Runtime
import Simulators
import Synchronization
import TestTime
import Testing

@testable import Providers

private let since: Int64 = 1_700_000_000_123

private let rows: [ReasonCode] = [
  row(400, "BadDeviceToken", .tokenInvalid(reason: "BadDeviceToken", since: nil)),
  row(400, "DeviceTokenNotForTopic", .rejected(reason: "DeviceTokenNotForTopic")),
  row(400, "BadCollapseId", .rejected(reason: "BadCollapseId")),
  row(400, "BadExpirationDate", .rejected(reason: "BadExpirationDate")),
  row(400, "BadMessageId", .rejected(reason: "BadMessageId")),
  row(400, "BadPriority", .rejected(reason: "BadPriority")),
  row(400, "BadTopic", .rejected(reason: "BadTopic")),
  row(400, "DuplicateHeaders", .rejected(reason: "DuplicateHeaders")),
  row(400, "InvalidPushType", .rejected(reason: "InvalidPushType")),
  row(400, "MissingDeviceToken", .rejected(reason: "MissingDeviceToken")),
  row(400, "MissingTopic", .rejected(reason: "MissingTopic")),
  row(400, "PayloadEmpty", .rejected(reason: "PayloadEmpty")),
  row(400, "TopicDisallowed", .rejected(reason: "TopicDisallowed")),
  resent(400, "IdleTimeout"),
  resent(403, "ExpiredProviderToken"),
  row(403, "InvalidProviderToken", .unauthorized(reason: "InvalidProviderToken")),
  row(403, "MissingProviderToken", .unauthorized(reason: "MissingProviderToken")),
  // A connection keeps such a refusal, so it counts only after a new connection was tried.
  row(403, "UnrelatedKeyIdInToken", .unauthorized(reason: "UnrelatedKeyIdInToken")),
  row(403, "BadEnvironmentKeyInToken", .unauthorized(reason: "BadEnvironmentKeyInToken")),
  row(403, "BadEnvironmentKeyIdInToken", .unauthorized(reason: "BadEnvironmentKeyIdInToken")),
  row(403, "BadCertificate", .unauthorized(reason: "BadCertificate")),
  row(403, "BadCertificateEnvironment", .unauthorized(reason: "BadCertificateEnvironment")),
  row(403, "Forbidden", .unauthorized(reason: "Forbidden")),
  row(404, "BadPath", .rejected(reason: "BadPath")),
  row(405, "MethodNotAllowed", .rejected(reason: "MethodNotAllowed")),
  row(410, "Unregistered", .tokenInvalid(reason: "Unregistered", since: since)),
  row(410, "ExpiredToken", .tokenInvalid(reason: "ExpiredToken", since: since)),
  row(413, "PayloadTooLarge", .rejected(reason: "PayloadTooLarge")),
  row(429, "TooManyRequests", .throttled(reason: "TooManyRequests", after: nil, isLaneWide: false)),
  resent(429, "TooManyProviderTokenUpdates"),
  row(500, "InternalServerError", .unavailable(reason: "InternalServerError", after: nil)),
  row(503, "ServiceUnavailable", .unavailable(reason: "ServiceUnavailable", after: nil)),
  row(503, "Shutdown", .unavailable(reason: "Shutdown", after: nil)),

  // The same reason repeatedly, or once, or with a Retry-After.
  row(400, "IdleTimeout", .unavailable(reason: "RefusedRepeatedly", after: nil), "always"),
  row(403, "ExpiredProviderToken", .unauthorized(reason: "ExpiredProviderToken"), "always"),
  row(429, "TooManyProviderTokenUpdates", .unavailable(reason: "RefusedRepeatedly", after: nil), "always"),
  ReasonCode("403 UnrelatedKeyIdInToken once", .reason("UnrelatedKeyIdInToken"), count: 1, .accepted),
  row(
    429, "TooManyRequests", .throttled(reason: "TooManyRequests", after: .seconds(7), isLaneWide: false),
    "Retry-After", retryAfter: 7),
  row(
    503, "ServiceUnavailable", .unavailable(reason: "ServiceUnavailable", after: .seconds(7)), "Retry-After",
    retryAfter: 7),
  ReasonCode(
    "502 html", Fault(.html),
    .outcome(.unavailable(reason: "status 502 without a readable reason", after: nil), status: 502)),
  ReasonCode(
    "500 malformed", Fault(.malformed),
    .outcome(.unavailable(reason: "status 500 without a readable reason", after: nil), status: 500)),
]

private func row(
  _ status: UInt16, _ reason: String, _ outcome: PushOutcome, _ manner: String? = nil, retryAfter: Int? = nil
) -> ReasonCode {
  ReasonCode(
    "\(status) \(reason)\(manner.map { " \($0)" } ?? "")",
    .reason(reason, retryAfter: retryAfter, timestamp: since), .outcome(outcome, status: status))
}

/// Counts as no attempt: after the first refusal the push is sent again, and accepted.
private func resent(_ status: UInt16, _ reason: String) -> ReasonCode {
  ReasonCode("\(status) \(reason)", .reason(reason), count: 1, .accepted)
}

/// A device token for each row: 64 hexadecimal digits.
private func token(_ index: Int) -> String {
  let digits = String(index, radix: 16)
  return "ee" + String(repeating: "0", count: 62 - digits.count) + digits
}

/// Tokens signed for the simulator; a refused one is replaced by a younger one.
private final class SignedTokens: ProviderTokenSource {
  private let credentials: APNsCredentials
  private let issuedAt = Mutex(SystemClock().wallMilliseconds() / 1000 - 1800)

  init(_ material: SimulatorMaterial) {
    credentials = APNsCredentials(
      teamID: material.identity.teamID, keyID: material.identity.keyID, key: material.apnsKey)
  }

  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    let seconds = issuedAt.withLock { issuedAt in
      if refused != nil { issuedAt += 1 }
      return issuedAt
    }
    guard let value = try? credentials.mint(issuedAtSeconds: seconds) else { throw ProviderTokenError("not signed") }
    return ProviderToken(
      value: value, issuedAtMilliseconds: seconds * 1000,
      renewAtMilliseconds: SystemClock().wallMilliseconds() + 2_700_000)
  }
}

@Suite(.simulators(.apns, rows, token: token), .serialized, .timeLimit(.minutes(10)))
struct ReasonCodesAPNsTests {
  @Test func `the table contains exactly the documented reasons`() {
    let tested = Set(rows.map { $0.name.split(separator: " ").prefix(2).joined(separator: " ") })
      .subtracting(["502 html", "500 malformed"])
    #expect(Set(APNsReasonTable.rows.map { "\($0.status) \($0.reason)" }) == tested)
    #expect(APNsReasonTable.rows.count == tested.count)
    #expect(Set(APNsReason.allCases.map { "\($0.status) \($0.rawValue)" }) == tested)
  }

  @Test(arguments: rows.indices.map { RowIndex($0, rows) })
  func `every answer of APNs has its documented outcome`(index: RowIndex) async throws {
    let simulators = try #require(SimulatorsTrait.simulators)
    var pool = APNsConfiguration.defaultPool
    pool.backoff.base = .milliseconds(1)
    pool.waitTimeout = .seconds(30)
    let tls = try TLSContext.client(caFile: simulators.material.authorityFile)
    let provider = HTTP2Provider(
      APNsConfiguration(
        topic: simulators.material.identity.topic,
        production: try HTTP2Endpoint(url: simulators.endpoints.apnsProduction, tls: tls),
        sandbox: try HTTP2Endpoint(url: simulators.endpoints.apnsSandbox, tls: tls), pool: pool),
      tokens: SignedTokens(simulators.material), loop: .paced("apns-test"), logger: silent)
    let row = rows[index.place]
    row.check(await provider.result(ofPushTo: token(index.place), body: #"{"aps":{},"callId":"c1"}"#))
    // Whatever the outcome, APNs gave this answer.
    let reason = String(row.name.split(separator: " ")[1])
    #expect(await simulators.apnsProduction.counters.refused[reason, default: 0] >= 1)
  }
}

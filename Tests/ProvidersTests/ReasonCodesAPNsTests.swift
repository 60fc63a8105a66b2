// Tests of every reason of APNs, from the simulator over the network to its outcome.

import Runtime
import Simulators
import Synchronization
import TestTime
import Testing

@testable import Providers

private let since: Int64 = 1_700_000_000_123

private let rows: [ReasonCode] =
  APNsReasonRow.documented.map(documented) + [
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

/// A documented reason, as a push experiences it: what is no outcome counts as no attempt, and the push is sent again.
private func documented(_ row: APNsReasonRow) -> ReasonCode {
  let name = "\(row.status) \(row.reason)"
  return switch row.disposition {
  // APNs says with 410 since when.
  case .settle(.tokenInvalid(let reason, _), _) where row.status == 410:
    ReasonCode(
      name, .reason(reason, timestamp: since), .outcome(.tokenInvalid(reason: reason, since: since), status: row.status)
    )
  case .settle(let outcome, _): ReasonCode(name, .reason(row.reason), .outcome(outcome, status: row.status))
  default: ReasonCode(name, .reason(row.reason), count: 1, .accepted)
  }
}

private func row(
  _ status: UInt16, _ reason: String, _ outcome: PushOutcome, _ manner: String, retryAfter: Int? = nil
) -> ReasonCode {
  ReasonCode(
    "\(status) \(reason) \(manner)", .reason(reason, retryAfter: retryAfter), .outcome(outcome, status: status))
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

@Suite("APNs reasons: over the network", .simulators(.apns, rows, token: token), .serialized, .timeLimit(.minutes(10)))
struct ReasonCodesAPNsTests {
  @Test func `the simulator has exactly the documented reasons`() {
    let documented = APNsReasonRow.documented.map { "\($0.status) \($0.reason)" }
    #expect(APNsReason.allCases.map { "\($0.status) \($0.rawValue)" }.sorted() == documented.sorted())
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
      tokens: SignedTokens(simulators.material),
      loop: .paced("apns-test", with: [simulators.apnsProduction.loop]), logger: silent)
    let row = rows[index.place]
    let result = await provider.result(ofPushTo: token(index.place), body: #"{"aps":{},"callId":"c1"}"#)
    row.check(result)
    #expect(result?.concernsLane == !row.name.contains("BadEnvironmentKey"))
    // Whatever the outcome, APNs gave this answer.
    let reason = String(row.name.split(separator: " ")[1])
    #expect(await simulators.apnsProduction.counters.refused[reason, default: 0] >= 1)
  }
}

// Tests of the token endpoint: what it grants, and its errors, caused by an invalid request and by a rule.

import Foundation
import Runtime
import Testing

@testable import Simulators

@Suite("OAuth simulator")
struct OAuthSimulatorTests {
  @Test("a signed assertion gets an access token for an hour")
  func grants() {
    var bench = FCMBench()
    let answer = bench.requestToken()
    #expect(answer.status == 200)
    #expect(object(answer.body)["expires_in"] as? Int == 3599)
    #expect(object(answer.body)["token_type"] as? String == "Bearer")
    #expect(object(answer.body)["access_token"] as? String != bench.accessToken)
  }

  static let now = Fixture.now
  static let flaws: [(name: String, claims: [String: any Sendable], error: String, words: String)] = [
    ("issuer", ["iss": "nobody@example.com"], "invalid_grant", "Invalid grant: account not found"),
    ("audience", ["aud": "https://oauth2.googleapis.com/token"], "invalid_grant", "Invalid JWT: Failed audience check"),
    ("too long", ["exp": now + 3601], "invalid_grant", "Invalid JWT: Token must be a short-lived token"),
    (
      "expired", ["iat": now - 3700, "exp": now - 100], "invalid_grant",
      "Invalid JWT: Token must be a short-lived token"
    ),
    (
      "future", ["iat": now + 120, "exp": now + 200], "invalid_grant", "Invalid JWT: Token must be a short-lived token"
    ),
    ("iat is text", ["iat": "\(now)"], "invalid_grant", "Invalid JWT: Token must be a short-lived token"),
    ("scope", ["scope": "https://www.googleapis.com/auth/drive"], "invalid_scope", "Invalid OAuth scope"),
  ]

  @Test("an invalid claim is refused with Google's message", arguments: flaws.indices)
  func refuses(_ index: Int) {
    let flaw = Self.flaws[index]
    var bench = FCMBench()
    let answer = bench.requestToken(claims: flaw.claims)
    #expect(answer.status == 400, "\(flaw.name)")
    #expect(object(answer.body)["error"] as? String == flaw.error, "\(flaw.name)")
    #expect((object(answer.body)["error_description"] as? String)?.hasPrefix(flaw.words) == true, "\(flaw.name)")
  }

  @Test("a wrong signature, algorithm, grant type or form is refused")
  func refusesEnvelope() throws {
    var bench = FCMBench()
    func words(_ answer: SimulatedAnswer) -> String { object(answer.body)["error_description"] as? String ?? "" }
    let stranger = try SigningKey.generate(for: .rs256)
    #expect(words(bench.requestToken(key: stranger)) == "Invalid JWT Signature.")
    #expect(words(bench.requestToken(header: #"{"alg":"HS256"}"#)) == "Invalid JWT: unknown algorithm")
    let grant = bench.requestToken(grantType: "client_credentials")
    #expect(object(grant.body)["error"] as? String == "unsupported_grant_type")
    #expect(object(bench.requestToken(contentType: "application/json").body)["error"] as? String == "invalid_request")
  }

  @Test("a rule of a plan can apply to the token endpoint alone")
  func faults() {
    var bench = FCMBench(
      faults: FaultPlan([FaultRule(provider: .oauth, fault: .reason("invalid_grant"), after: 1, count: 1)]))
    #expect(bench.requestToken().status == 400)
    #expect(bench.requestToken().status == 200)
    #expect(bench.send().status == 200)
  }
}

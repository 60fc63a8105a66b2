// Tests of APNs' requirements for a provider token.

import Runtime
import Testing

@testable import Simulators

@Suite("APNs provider tokens")
struct ProviderTokenTests {
  private func reason(_ answer: SimulatedAnswer) -> String { object(answer.body)["reason"] as? String ?? "" }

  static let flaws: [(name: String, header: String, claims: String?)] = [
    ("alg", #"{"alg":"RS256","kid":"KEY7654321"}"#, nil),
    ("no kid", #"{"alg":"ES256"}"#, nil),
    ("unknown kid", #"{"alg":"ES256","kid":"NOBODY0000"}"#, nil),
    ("header is no JSON", #"{"alg":"ES256""#, nil),
    ("no iss", #"{"alg":"ES256","kid":"KEY7654321"}"#, #"{"iat":1799999990}"#),
    ("another team", #"{"alg":"ES256","kid":"KEY7654321"}"#, #"{"iss":"TEAM000000","iat":1799999990}"#),
    ("no iat", #"{"alg":"ES256","kid":"KEY7654321"}"#, #"{"iss":"TEAM123456"}"#),
    ("iat is a string", #"{"alg":"ES256","kid":"KEY7654321"}"#, #"{"iss":"TEAM123456","iat":"1799999990"}"#),
    ("iat in the future", #"{"alg":"ES256","kid":"KEY7654321"}"#, #"{"iss":"TEAM123456","iat":1800000120}"#),
  ]

  @Test("a flawed token is InvalidProviderToken", arguments: flaws.indices)
  func refuses(_ index: Int) {
    let flaw = Self.flaws[index]
    var bench = APNsBench()
    let answer = bench.send(["authorization": "bearer \(Fixture.jwt(header: flaw.header, claims: flaw.claims))"])
    #expect(answer.status == 403, "\(flaw.name)")
    #expect(reason(answer) == "InvalidProviderToken", "\(flaw.name)")
    #expect(!answer.isAuthorised)
  }

  @Test("a signature of another key is InvalidProviderToken")
  func refusesSignature() {
    var bench = APNsBench()
    #expect(
      reason(bench.send(["authorization": "bearer \(Fixture.jwt(key: Fixture.secondKey))"])) == "InvalidProviderToken")
  }

  @Test("one changed character is InvalidProviderToken, even after the valid token was seen")
  func refusesChange() {
    var bench = APNsBench()
    #expect(bench.send().status == 200)
    var characters = Array(Fixture.goodJWT)
    characters[characters.count - 10] = characters[characters.count - 10] == "A" ? "B" : "A"
    #expect(reason(bench.send(["authorization": "bearer \(String(characters))"])) == "InvalidProviderToken")
  }

  @Test("a token is valid for an hour, then ExpiredProviderToken for all later requests of the connection")
  func expires() {
    var bench = APNsBench()
    bench.now = Fixture.now + 3_540
    #expect(bench.send().status == 200)
    bench.now += 1
    let answer = bench.send()
    #expect(answer.status == 403)
    #expect(reason(answer) == "ExpiredProviderToken")
    let fresh: [String: String?] = [
      "authorization": "bearer \(Fixture.jwt(claims: #"{"iss":"TEAM123456","iat":\#(bench.now)}"#))"
    ]
    #expect(reason(bench.send(fresh)) == "ExpiredProviderToken")
    bench.connection = ConnectionMemory()
    #expect(bench.send(fresh).status == 200)
  }

  @Test("a token with another key on the same connection is UnrelatedKeyIdInToken")
  func keepsKey() {
    var bench = APNsBench()
    #expect(bench.send().status == 200)
    let other: [String: String?] = [
      "authorization": "bearer \(Fixture.jwt(header: #"{"alg":"ES256","kid":"SECONDKEY0"}"#, key: Fixture.secondKey))"
    ]
    #expect(reason(bench.send(other)) == "UnrelatedKeyIdInToken")
    bench.connection = ConnectionMemory()
    #expect(bench.send(other).status == 200)
  }

  @Test("a second new token within the interval is TooManyProviderTokenUpdates; the first stays valid")
  func limitsUpdates() {
    var bench = APNsBench(tokenUpdateInterval: 1_200)
    #expect(bench.send().status == 200)
    bench.now += 1_199
    let second: [String: String?] = [
      "authorization": "bearer \(Fixture.jwt(claims: #"{"iss":"TEAM123456","iat":\#(bench.now)}"#))"
    ]
    let answer = bench.send(second)
    #expect(answer.status == 429)
    #expect(reason(answer) == "TooManyProviderTokenUpdates")
    #expect(bench.send().status == 200)
    bench.now += 1
    #expect(bench.send(second).status == 200)
  }

  @Test("a request is authorised by its token even if the rest is invalid")
  func authorises() {
    var bench = APNsBench()
    #expect(bench.send(["apns-topic": nil]).isAuthorised)
    #expect(bench.send().isAuthorised)
  }
}

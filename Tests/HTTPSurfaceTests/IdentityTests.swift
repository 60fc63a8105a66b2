// Tokens of an identity-aware proxy, made by PyJWT (Tests/jwt/issue.py): valid ones, and every kind of forgery.

import HTTPSurfaceTestSupport
import Foundation
import Logging
import Runtime
import TestProcess
import TestSupport
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct IdentityTests {
  /// The output of Tests/jwt/issue.py.
  struct Issued: Decodable {
    var tokens: [String: String]
    /// The JWK Set as text.
    var keySet = ""
    enum CodingKeys: CodingKey { case tokens }

    /// - Parameter now: seconds since 1970.
    init(now: Int) throws {
      let process = Process()
      process.executableURL = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "jwt/issue")
      let (input, output) = (Pipe(), Pipe())
      process.standardInput = input
      process.standardOutput = output
      try process.start()
      input.fileHandleForWriting.write(Data(#"{"now": \#(now)}"#.utf8))
      try input.fileHandleForWriting.close()
      let data = try output.fileHandleForReading.readToEnd() ?? Data()
      process.waitUntilExit()
      self = try JSONDecoder().decode(Issued.self, from: data)
      let object = try JSONSerialization.jsonObject(with: data) as? [String: Any]
      keySet = String(decoding: try JSONSerialization.data(withJSONObject: object?["jwks"] ?? [:]), as: UTF8.self)
    }
  }

  static let rules = IdentityRules(
    issuer: "https://proxy.example", audience: "/projects/1/apps/push", nameClaim: "email",
    allowed: ["alice@example.com", "@team.example"])
  private static let now = 1_800_000_000

  private func results(_ rules: IdentityRules = rules) throws -> [String: Result<String, IdentityRules.Refusal>] {
    let issued = try Issued(now: Self.now)
    let keys = try JSONWebKeySet(Array(issued.keySet.utf8))
    return issued.tokens.mapValues { token in
      Result { () throws(IdentityRules.Refusal) in
        try rules.name(in: token, keys: keys, nowSeconds: Double(Self.now))
      }
    }
  }

  @Test func `valid tokens are accepted, and all others are refused`() throws {
    let alice = Result<String, IdentityRules.Refusal>.success("alice@example.com")
    let expected: [String: Result<String, IdentityRules.Refusal>] = [
      "es256": alice, "rs256": alice, "audiences": alice, "fractions": alice, "verified": alice, "by sub": alice,
      "by domain": .failure(.notAllowed), "alg none": .failure(.wrongSignature),
      "alg none, unsigned": .failure(.malformed), "hs256 with the public key": .failure(.wrongSignature),
      "es256 header over hs256": .failure(.wrongSignature), "another key": .failure(.wrongSignature),
      "rs256 under the ec key's id": .failure(.wrongSignature), "unknown kid": .failure(.unknownKey),
      "no kid": .failure(.unknownKey), "crit": .failure(.wrongSignature), "changed claims": .failure(.wrongSignature),
      "another issuer": .failure(.wrongIssuer), "no issuer": .failure(.wrongIssuer),
      "another audience": .failure(.wrongAudience), "other audiences": .failure(.wrongAudience),
      "no audience": .failure(.wrongAudience), "expired": .failure(.expired), "no end": .failure(.expired),
      "an end that is text": .failure(.expired), "not yet": .failure(.notYetValid),
      "issued later": .failure(.notYetValid), "no name": .failure(.nameless),
      "a name that is a number": .failure(.nameless), "not verified": .failure(.nameless),
      "somebody else": .failure(.notAllowed), "nearly the domain": .failure(.notAllowed),
      "two ats": .failure(.notAllowed), "three parts of nothing": .failure(.malformed),
      "not a token": .failure(.malformed), "a part too many": .failure(.malformed),
    ]
    let results = try results()
    #expect(Set(results.keys) == Set(expected.keys))
    for (name, result) in results { #expect(result == expected[name], "\(name)") }
  }

  @Test func `the name may be in another claim, and all names of a domain may be allowed`() throws {
    var rules = Self.rules
    rules.allowed = ["@example.com"]
    #expect(try results(rules)["by domain"] == .success("Bob@Example.com"))
    (rules.nameClaim, rules.allowed) = ("sub", ["bob"])
    #expect(try results(rules)["by sub"] == .success("bob"))
  }

  @Test func `the keys are always those in the file`() async throws {
    let file = FileManager.default.temporaryDirectory.appending(path: "jwks-\(UUID().uuidString)").path
    defer { try? FileManager.default.removeItem(atPath: file) }
    let seconds = Int(SystemClock().wallMilliseconds() / 1000)
    let (one, two) = (try Issued(now: seconds), try Issued(now: seconds))
    func write(_ text: String) throws { try Data(text.utf8).write(to: URL(fileURLWithPath: file), options: .atomic) }
    let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    let verifier = IdentityVerifier(rules: Self.rules, file: file, logger: logger)
    let (first, second) = (try #require(one.tokens["es256"]), try #require(two.tokens["es256"]))
    #expect(await verifier.name(in: first) == nil)
    try write(one.keySet)
    #expect(await verifier.name(in: first) == "alice@example.com")
    #expect(await verifier.name(in: "Bearer \(first)") == "alice@example.com")
    #expect(await verifier.name(in: second) == nil)
    try write(two.keySet)
    #expect(await verifier.name(in: first) == nil)
    #expect(await verifier.name(in: second) == "alice@example.com")
    try write("")
    #expect(await verifier.name(in: second) == nil)
    try FileManager.default.removeItem(atPath: file)
    #expect(await verifier.name(in: second) == nil)
  }

  @Test func `a user with an identity from the proxy reads, and makes changes under that name`() async throws {
    let file = FileManager.default.temporaryDirectory.appending(path: "jwks-\(UUID().uuidString)").path
    defer { try? FileManager.default.removeItem(atPath: file) }
    let issued = try Issued(now: Int(SystemClock().wallMilliseconds() / 1000))
    try Data(issued.keySet.utf8).write(to: URL(fileURLWithPath: file))
    var access = GatewayConfiguration.OpsAccess()
    access.identity = .init(header: "X-Goog-IAP-JWT-Assertion", keysFile: file, rules: Self.rules)
    try await DashboardHarness.with(hasKey: false, listen: "0.0.0.0", access: access) { dashboard in
      try await dashboard.database.execute("select push.register_lane('porteiro', 'fcm')")
      let field = "x-goog-iap-jwt-assertion: \(issued.tokens["es256"] ?? "")"
      for name in [
        "alg none", "hs256 with the public key", "unknown kid", "expired", "another audience", "another issuer",
      ] {
        let forged = ["X-Goog-IAP-JWT-Assertion: \(issued.tokens[name] ?? "")"]
        #expect(try await dashboard.get("/ui/state", headers: forged).status == 401, "\(name)")
        #expect(try await dashboard.switchLane(nil, headers: forged).status == 401, "\(name)")
      }
      #expect(try await dashboard.get("/ui/state", headers: [field]).status == 200)
      #expect(try await dashboard.get("/metrics", headers: [field]).status == 200)
      let session = try await dashboard.get("/ui/session", headers: [field]).json
      #expect(session["name"] as? String == "alice@example.com" && session["canLogOut"] as? Bool == false)
      let token = try #require(session["token"] as? String)
      // A request of another site contains the proxy's cookie, but neither the token nor the origin.
      #expect(try await dashboard.switchLane(nil, headers: [field]).problem == "other-site")
      let shown = [field, "X-CSRF-Token: \(token)"]
      #expect(
        try await dashboard.switchLane(nil, origin: "http://evil.example", headers: shown).problem == "other-site")
      #expect(try await dashboard.switchLane(nil, headers: shown).status == 200)
      #expect(
        try await dashboard.database.value("select concat_ws(' ', action, operator) from push.audit")
          == "pause_lane alice@example.com")
    }
  }
}

// Tests of each check of the push service's simulator, and of each error that a subscription can ask for.

import Foundation
import Runtime
import Testing

@testable import Simulators

/// The rules of a push service with a browser, a journal and a time.
private struct WebPushBench {
  static let origin = "https://push.example.com:8443"
  static let browser = WebPushBrowser.generate()!
  static let key = Fixture.apnsKey
  static let payload = #"{"type":"intercom_call","callId":"c1"}"#

  var simulator: WebPushSimulator
  var connection = ConnectionMemory()
  var journal = SimulatorJournal(options: .init(logs: true, logsRefused: true))
  var now = Fixture.now

  init(faults: FaultPlan = FaultPlan()) {
    simulator = WebPushSimulator(
      .init(origin: Self.origin, browser: Self.browser, applicationServerKey: try! Self.key.publicKeyPoint()),
      faults: faults)
  }

  /// A token: the claims of the argument replace or (nil) remove those of a valid one.
  static func token(_ changes: [String: Any?] = [:], key: SigningKey = key, publicKey: SigningKey? = nil) -> String {
    var claims: [String: Any] = ["aud": origin, "exp": Fixture.now + 3_600, "sub": "mailto:ops@example.com"]
    for (name, value) in changes { claims[name] = value }
    let text = try! JSONSerialization.data(withJSONObject: claims)
    let jwt = String(
      decoding: try! JSONWebToken.sign(
        header: Array(#"{"typ":"JWT","alg":"ES256"}"#.utf8), claims: Array(text), with: key), as: UTF8.self)
    let point = Base64URL.encode(try! (publicKey ?? key).publicKeyPoint())
    return "vapid t=\(jwt), k=\(String(decoding: point, as: UTF8.self))"
  }

  static let goodToken = token()

  /// A body for the browser: RFC 8291, written for these tests.
  static func encrypt(
    _ text: String, for browser: WebPushBrowser = browser, sender: KeyAgreementKey = .generate()!,
    delimiter: UInt8 = 2, recordSize: [UInt8] = [0, 0, 16, 0]
  ) -> [UInt8] {
    let salt = SecureRandom.bytes(16)!
    let secret = sender.sharedSecret(with: KeyAgreementPoint(browser.key.point)!)!
    let info = Array("WebPush: info\0".utf8) + browser.key.point + sender.point
    let material = HKDFSHA256.expand(HKDFSHA256.extract(secret, salt: browser.auth), info: info, count: 32)
    let root = HKDFSHA256.extract(material, salt: salt)
    let key = HKDFSHA256.expand(root, info: Array("Content-Encoding: aes128gcm\0".utf8), count: 16)
    let nonce = HKDFSHA256.expand(root, info: Array("Content-Encoding: nonce\0".utf8), count: 12)
    return salt + recordSize + [65] + sender.point
      + AES128GCM.seal(Array(text.utf8) + [delimiter], key: key, nonce: nonce)
  }

  static let fields: [String: String] = [
    ":method": "POST", ":path": "/push/browser-1", "authorization": goodToken, "ttl": "30", "urgency": "high",
    "content-encoding": "aes128gcm",
  ]

  /// Sends a valid request with the given changes; nil removes a field.
  mutating func send(_ changes: [String: String?] = [:], body: [UInt8]? = nil) -> SimulatedAnswer {
    var fields = Self.fields
    for (name, value) in changes { fields[name] = value }
    var request = SimulatedRequest(fields.sorted { $0.key < $1.key }, body: "")
    request.body = body ?? Self.encrypt(Self.payload)
    return simulator.respond(to: request, on: &connection, at: now * 1_000_000, journal: &journal)
  }

  /// The detail of the last refusal in the log.
  var lastDetail: String {
    let line = journal.pendingLines.split(separator: 0x0A).last ?? []
    return object(Array(line))["detail"] as? String ?? ""
  }
}

@Suite("Web push simulator") struct WebPushSimulatorTests {
  @Test("a valid push is accepted, decrypted and given a location")
  func accepts() throws {
    var bench = WebPushBench()
    let answer = bench.send(["topic": "dG9waWM", "ttl": "0"])
    #expect(answer.status == 201 && answer.body.isEmpty)
    #expect(answer.location.starts(with: Array("\(WebPushBench.origin)/message/".utf8)))
    let push = try #require(bench.journal.accepted.first)
    #expect(push.token == "browser-1" && push.kind == "high" && push.topic == WebPushBench.origin)
    #expect(push.detail("ttl") == "0" && push.detail("topic") == "dG9waWM")
    #expect(push.payload == Array(WebPushBench.payload.utf8))
    #expect(push.violation == nil)
    #expect(bench.send().location != answer.location)
    let line = String(decoding: bench.journal.pendingLines, as: UTF8.self)
    #expect(line.contains(#""provider":"webpush""#) && line.contains(#""payload":{"type":"intercom_call""#))
  }

  @Test(
    "a wrong header is refused with its error",
    arguments: [
      ([":method": "GET"], 405, "HTTP405"), ([":path": "/"], 404, "errno_102"), ([":path": "/push/"], 404, "errno_102"),
      ([":path": "/push/a/b"], 404, "errno_102"), (["ttl": nil], 400, "errno_111"), (["ttl": "-1"], 400, "errno_112"),
      (["ttl": "3.5"], 400, "errno_112"), (["ttl": ""], 400, "errno_112"), (["urgency": nil], 400, "BadUrgency"),
      (["urgency": "urgent"], 400, "BadUrgency"), (["topic": ""], 400, "errno_113"),
      (["topic": String(repeating: "a", count: 33)], 400, "errno_113"), (["topic": "a.b"], 400, "errno_113"),
      (["topic": "abcde"], 400, "errno_113"), (["content-encoding": nil], 400, "errno_110"),
      (["content-encoding": "aesgcm"], 400, "errno_110"), (["crypto-key": "dh=AAAA"], 400, "errno_110"),
      (["encryption": "salt=AAAA"], 400, "errno_110"), (["authorization": nil], 401, "errno_109"),
      (["authorization": "WebPush x"], 401, "errno_109"), (["authorization": "vapid t=x"], 401, "errno_109"),
      (["authorization": "vapid t=x, k=y"], 401, "errno_109"),
    ] as [([String: String?], Int, String)])
  func headers(_ changes: [String: String?], _ status: Int, _ reason: String) {
    var bench = WebPushBench()
    #expect(bench.send(changes).status == status)
    #expect(bench.journal.counters.refused == [reason: 1])
    #expect(bench.journal.counters.accepted == 0)
  }

  @Test("a token must be signed by the subscription's key, for this origin, and expire within a day")
  func tokens() {
    func detail(_ token: String) -> String {
      var bench = WebPushBench()
      let answer = bench.send(["authorization": token])
      if answer.status == 201 { return "accepted" }
      #expect(answer.status == 401)
      return bench.lastDetail
    }
    let now = Fixture.now
    #expect(detail(WebPushBench.token()) == "accepted")
    #expect(detail(WebPushBench.token(["exp": now + 86_400])) == "accepted")
    #expect(detail(WebPushBench.token(["sub": "https://example.com"])) == "accepted")
    #expect(detail(WebPushBench.token(["exp": now + 86_401])) == "exp is more than a day in the future")
    #expect(detail(WebPushBench.token(["exp": now])) == "exp is in the past")
    #expect(detail(WebPushBench.token(["exp": "soon"])) == "exp is not a whole number")
    #expect(detail(WebPushBench.token(["aud": "https://push.example.com"])) == "aud is not the origin")
    #expect(detail(WebPushBench.token(["sub": "ops@example.com"])) == "sub is missing or neither mailto: nor https:")
    #expect(
      detail(WebPushBench.token(key: Fixture.secondKey)) == "the subscription was made with another key")
    #expect(
      detail(WebPushBench.token(key: Fixture.secondKey, publicKey: WebPushBench.key))
        == "the signature is not that of k")
    let good = WebPushBench.token()
    #expect(detail(String(good.dropLast())) == "k is missing or no point on P-256")
    #expect(detail(good + ", k=x") == "a parameter occurs twice")
  }

  @Test("a token that was accepted is refused when it has expired")
  func expiry() {
    var bench = WebPushBench()
    #expect(bench.send().status == 201)
    bench.now += 3_600
    #expect(bench.send().status == 401)
    #expect(bench.lastDetail == "exp is in the past")
  }

  @Test("a message that the browser cannot decrypt is refused")
  func encryption() {
    var bench = WebPushBench()
    let good = WebPushBench.encrypt(WebPushBench.payload)
    var changed = good
    changed[100] ^= 1
    for body in [
      [], Array(WebPushBench.payload.utf8), changed, Array(good.dropLast()),
      WebPushBench.encrypt(WebPushBench.payload, for: .generate()!),
      WebPushBench.encrypt(
        WebPushBench.payload, for: WebPushBrowser(key: WebPushBench.browser.key, auth: [UInt8](repeating: 1, count: 16))
      ),
      WebPushBench.encrypt(WebPushBench.payload, delimiter: 1),  // not the last record
      WebPushBench.encrypt(WebPushBench.payload, recordSize: [0, 0, 0, 18]),
    ] {
      #expect(bench.send(body: body).status == 400)
      #expect(bench.lastDetail == "the browser cannot decrypt the message")
    }
    #expect(bench.send(body: WebPushBench.encrypt("no JSON")).status == 400)
    #expect(
      bench.send(body: WebPushBench.encrypt("{\"a\":\"" + String(repeating: "x", count: 4_000) + "\"}")).status == 413)
    #expect(bench.send(body: good).status == 201)
  }

  @Test("an encryption that is used twice is recorded as a violation")
  func repeated() {
    var bench = WebPushBench()
    let body = WebPushBench.encrypt(WebPushBench.payload)
    #expect(bench.send(body: body).status == 201)
    #expect(bench.send(body: body).status == 201)
    let sender = KeyAgreementKey.generate()!
    _ = bench.send(body: WebPushBench.encrypt(WebPushBench.payload, sender: sender))
    _ = bench.send(body: WebPushBench.encrypt(WebPushBench.payload, sender: sender))  // another salt
    #expect(bench.journal.counters.violations == ["encryption_is_repeated": 2])
  }

  @Test(
    "a subscription asks for each error, in the format of its push service", arguments: WebPushError.all.map(\.reason))
  func errors(_ reason: String) throws {
    var bench = WebPushBench()
    let prefix = try #require(FaultCatalog.tokenPrefix(of: reason, at: .webpush))
    let answer = bench.send([":path": "/push/\(prefix)7-abc"])
    let error = try #require(WebPushError.named(reason))
    #expect(answer.status == error.status && answer.retryAfter == 7)
    #expect(bench.journal.counters.refused == [reason: 1])
    let body = object(answer.body)
    if reason.hasPrefix("errno_") {
      #expect((body["errno"] as? Int).map { "errno_\($0)" } == reason && body["code"] as? Int == error.status)
    } else if reason.hasSuffix("throttled") {
      #expect(answer.wnsStatus == Array(reason.utf8))
    } else if !reason.hasPrefix("HTTP") {
      #expect(body["reason"] as? String == reason)
    }
  }

  @Test("the faults of every provider work here, too", arguments: Fault.names.map(\.name))
  func commonFaults(_ name: String) throws {
    var bench = WebPushBench()
    let prefix = try #require(FaultCatalog.tokenPrefix(of: name, at: .webpush))
    let answer = bench.send([":path": "/push/\(prefix)abc"])
    let isAccepted = ["lose", "slow", "goaway"].contains(name)
    #expect(bench.journal.counters.accepted == (isAccepted ? 1 : 0))
    #expect((answer.status == 201) == isAccepted)
    #expect(FaultCatalog.text.contains("fault-\(name)"))
  }

  @Test("a rule of the plan selects requests by the name in the endpoint")
  func plan() throws {
    let json = #"[{"provider":"webpush","token_prefix":"a","reason":"errno_201","status":429,"retry_after":3}]"#
    var bench = WebPushBench(faults: try FaultPlan(json: Array(json.utf8)))
    let answer = bench.send([":path": "/push/abc"])
    #expect(answer.status == 429 && answer.retryAfter == 3)
    #expect(object(answer.body)["errno"] as? Int == 201)
    #expect(bench.send([":path": "/push/b"]).status == 201)
  }

  @Test("a second start of the simulators uses the same keys")
  func material() throws {
    let first = try SimulatorMaterial()
    let second = try SimulatorMaterial(directory: first.directory)
    #expect(first.browser.key.point == second.browser.key.point && first.browser.auth == second.browser.auth)
    #expect(try first.webPushKey.publicKeyPoint() == second.webPushKey.publicKeyPoint())
    try first.writeWebPushSubscription(endpoint: "https://127.0.0.1:1/push/a")
    let subscription = object(try #require(MaterialFile.read(first.webPushSubscriptionFile)))
    #expect(subscription["endpoint"] as? String == "https://127.0.0.1:1/push/a")
    let keys = try #require(subscription["keys"] as? [String: String])
    #expect(keys["p256dh"]?.count == 87 && keys["auth"]?.count == 22)
    try FileManager.default.removeItem(atPath: first.directory)
  }
}

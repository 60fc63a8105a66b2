// Shared by the tests of the simulators: keys made once, and valid requests that a test then changes.

import Foundation
import Runtime

@testable import Simulators

enum Fixture {
  static let teamID = "TEAM123456"
  static let keyID = "KEY7654321"
  static let topic = "com.example.app"
  static let project = "simulated-project"
  static let issuer = "push-gateway@simulated-project.iam.gserviceaccount.com"
  static let audience = "https://127.0.0.1:9/token"
  /// The tests' time: seconds since 1970.
  static let now: Int64 = 1_800_000_000
  static let token = String(repeating: "a1b2c3d4", count: 8)

  static let apnsKey = try! SigningKey.generate(for: .es256)
  static let secondKey = try! SigningKey.generate(for: .es256)
  static let fcmKey = try! SigningKey.generate(for: .rs256)

  static func jwt(
    header: String = #"{"alg":"ES256","kid":"KEY7654321"}"#, claims: String? = nil, key: SigningKey = apnsKey
  ) -> String {
    let claims = claims ?? #"{"iss":"TEAM123456","iat":\#(now - 60)}"#
    return String(
      decoding: try! JSONWebToken.sign(header: Array(header.utf8), claims: Array(claims.utf8), with: key), as: UTF8.self
    )
  }

  /// Shared by all tests that do not change it: signing takes longer than the rest of a test.
  static let goodJWT = jwt()
}

extension SimulatedRequest {
  init(_ fields: [(String, String)], body: String) {
    var block = HTTP2HeaderBlock()
    for (name, value) in fields { block.add(name: Array(name.utf8), value: Array(value.utf8)) }
    self.init(headers: block, body: Array(body.utf8))
  }
}

/// A JSON text parsed by Foundation, to check answers with another parser.
func object(_ bytes: [UInt8]) -> [String: Any] {
  (try? JSONSerialization.jsonObject(with: Data(bytes))) as? [String: Any] ?? [:]
}

/// APNs' rules with a connection, a journal and a time.
struct APNsBench {
  var simulator: APNsSimulator
  var connection = ConnectionMemory()
  var journal = SimulatorJournal(options: .init(logs: true, logsRefused: true))
  var now = Fixture.now

  init(
    _ environment: APNsSimulator.Environment = .production, tokenUpdateInterval: Int64? = nil,
    faults: FaultPlan = FaultPlan()
  ) {
    simulator = APNsSimulator(
      .init(
        environment: environment,
        keys: [
          Fixture.keyID: try! Fixture.apnsKey.verifyingKey(), "SECONDKEY0": try! Fixture.secondKey.verifyingKey(),
        ],
        teamIDs: [Fixture.teamID], topics: [Fixture.topic], tokenUpdateInterval: tokenUpdateInterval), faults: faults)
  }

  static let fields: [String: String] = [
    ":method": "POST", ":path": "/3/device/\(Fixture.token)", "authorization": "bearer \(Fixture.goodJWT)",
    "apns-topic": "com.example.app.voip", "apns-push-type": "voip", "apns-priority": "10", "apns-expiration": "0",
    "apns-id": "123e4567-e89b-12d3-a456-426614174000",
  ]
  static let payload = #"{"type":"intercom_call","action":"incoming_call","callId":"c1"}"#

  /// Sends a valid request with the given changes; nil removes a field.
  mutating func send(
    _ changes: [String: String?] = [:], body: String = payload, extra: [(String, String)] = []
  ) -> SimulatedAnswer {
    var fields = Self.fields
    for (name, value) in changes { fields[name] = value }
    let request = SimulatedRequest(fields.sorted { $0.key < $1.key } + extra, body: body)
    return simulator.respond(to: request, on: &connection, at: now * 1_000_000, journal: &journal)
  }

  static func path(_ token: String) -> String { "/3/device/\(token)" }
  static func token(_ prefix: String) -> String { prefix + String(repeating: "0", count: 64 - prefix.count) }
}

/// FCM's rules with an access token from its own endpoint.
struct FCMBench {
  var simulator: FCMSimulator
  var connection = ConnectionMemory()
  var journal = SimulatorJournal(options: .init(logs: true, logsRefused: true))
  var now = Fixture.now
  var accessToken = ""

  init(requiresDataOnly: Bool = true, faults: FaultPlan = FaultPlan()) {
    simulator = FCMSimulator(
      .init(
        project: Fixture.project,
        oauth: .init(key: try! Fixture.fcmKey.verifyingKey(), issuer: Fixture.issuer, audience: Fixture.audience),
        requiresDataOnly: requiresDataOnly), faults: faults)
    accessToken = object(requestToken().body)["access_token"] as? String ?? ""
  }

  mutating func requestToken(
    claims: [String: Any] = [:], header: String = #"{"alg":"RS256","typ":"JWT"}"#, key: SigningKey = Fixture.fcmKey,
    grantType: String = OAuthSimulator.grantType, contentType: String = "application/x-www-form-urlencoded"
  ) -> SimulatedAnswer {
    var all: [String: Any] = [
      "iss": Fixture.issuer, "scope": OAuthSimulator.scope, "aud": Fixture.audience, "iat": now, "exp": now + 3600,
    ]
    for (name, value) in claims { all[name] = value }
    let text = try! JSONSerialization.data(withJSONObject: all)
    let assertion = String(
      decoding: try! JSONWebToken.sign(header: Array(header.utf8), claims: Array(text), with: key), as: UTF8.self)
    let grant = grantType.replacingOccurrences(of: ":", with: "%3A")
    return respond(
      [(":method", "POST"), (":path", "/token"), ("content-type", contentType)],
      body: "grant_type=\(grant)&assertion=\(assertion)")
  }

  static let token = "cF9xQ2x0:APA91bHun4MxP5egoKMwt2KZFBaFUH-1RYqx"
  static func message(
    token: String = token, data: String = #"{"type":"intercom_call"}"#,
    android: String = #"{"priority":"HIGH","ttl":"30s"}"#, more: String = ""
  ) -> String {
    #"{"message":{"token":"\#(token)","data":\#(data),"android":\#(android)\#(more)}}"#
  }

  mutating func send(
    _ body: String = message(), path: String = "/v1/projects/simulated-project/messages:send",
    authorization: String? = nil,
    method: String = "POST", contentType: String = "application/json"
  ) -> SimulatedAnswer {
    respond(
      [
        (":method", method), (":path", path), ("authorization", authorization ?? "Bearer \(accessToken)"),
        ("content-type", contentType),
      ], body: body)
  }

  private mutating func respond(_ fields: [(String, String)], body: String) -> SimulatedAnswer {
    simulator.respond(
      to: SimulatedRequest(fields, body: body), on: &connection, at: now * 1_000_000, journal: &journal)
  }
}

/// Expo's rules.
struct ExpoBench {
  var simulator: ExpoSimulator
  var connection = ConnectionMemory()
  var journal = SimulatorJournal(options: .init(logs: true, logsRefused: true))
  var now = Fixture.now

  init(_ configuration: ExpoSimulator.Configuration = .init(), faults: FaultPlan = FaultPlan()) {
    simulator = ExpoSimulator(configuration, faults: faults)
  }

  static func message(_ token: String = "ExponentPushToken[abc]", more: String = #","ttl":30"#) -> String {
    #"{"to":"\#(token)","priority":"high","data":{"type":"intercom_call"}\#(more)}"#
  }

  mutating func send(
    _ body: String, path: String = ExpoSimulator.sendPath, method: String = "POST", headers: [(String, String)] = []
  ) -> SimulatedAnswer {
    send(bytes: Array(body.utf8), path: path, method: method, headers: headers)
  }

  mutating func send(
    bytes: [UInt8], path: String = ExpoSimulator.sendPath, method: String = "POST", headers: [(String, String)] = []
  ) -> SimulatedAnswer {
    var request = SimulatedRequest(
      [(":method", method), (":path", path), ("content-type", "application/json")] + headers, body: "")
    request.body = bytes
    return simulator.respond(to: request, on: &connection, at: now * 1_000_000, journal: &journal)
  }

  mutating func receipts(_ ids: [String]) -> SimulatedAnswer {
    send(#"{"ids":["\#(ids.joined(separator: #"",""#))"]}"#, path: ExpoSimulator.receiptsPath)
  }
}

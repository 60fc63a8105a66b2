// Runs the built program at trace level, with a secret in every field that may contain one and with every kind of
// failure. No log line may contain a secret.

import HTTPSurfaceTestSupport
import Foundation
import HTTP2TestSupport
import Queue
import Simulators
import TestProcess
import TestSupport
import TestTime
import Testing

@testable import Gateway
@testable import Settings

/// `push-gateway serve` as a process, with its standard error in a file.
private final class ServingProcess {
  private let process: Process
  private let log: URL

  init(_ configuration: String, database: String, _ arguments: [String] = []) throws {
    log = URL(fileURLWithPath: configuration).deletingLastPathComponent().appending(path: "\(UUID().uuidString).log")
    try Data().write(to: log)
    process = OperationsFixture.process(database, ["serve", "--config", configuration] + arguments)
    process.standardError = try FileHandle(forWritingTo: log)
    process.standardOutput = FileHandle.nullDevice
    try process.start()
  }

  var text: String { (try? String(contentsOf: log, encoding: .utf8)) ?? "" }

  /// The complete lines: the last one may be partly written.
  private var wholeLines: [Substring] {
    Array(text.split(separator: "\n", omittingEmptySubsequences: false).dropLast())
  }

  /// Waits for a line that contains `text`.
  func line(with text: String, count: Int = 1) async throws -> String {
    var lines: [Substring] = []
    try await eventually("\(count) lines with \(text)") {
      lines = wholeLines.filter { $0.contains(text) }
      guard lines.count >= count || process.isRunning else { throw Ended(log: self.text) }
      return lines.count >= count
    }
    return String(lines[count - 1])
  }

  func hangUp() { kill(process.processIdentifier, SIGHUP) }

  func stop() async throws -> Int32 {
    process.terminate()
    try await eventually("the gateway has ended") { !process.isRunning }
    return process.terminationStatus
  }

  struct Ended: Error { let log: String }

  deinit { if process.isRunning { kill(process.processIdentifier, SIGKILL) } }
}

@Suite(.timeLimit(.minutes(10))) struct LogSecretsTests {
  private static let trace = "4bf92f3577b34da6a3ce929d0e0e4736"
  private static let password = "database-password-hunter2"
  private static let voip = ["a1b2c3d4e5f60718", "a9b8c7d6e5f40312", "dead4100e5f40312"].map {
    $0 + String(repeating: "5e", count: 24)
  }
  private static let fcm = [
    "planted-fcm-token:APA91bPlanted", "hostile-fcm-token:APA91bPlanted", "html-fcm-token:APA91bPlanted",
    "fault-goaway-planted:APA91b", "fault-UNREGISTERED-planted:APA91b",
  ]
  private static let expo = ["plantedPLANTEDplantedA", "hostileHOSTILEhostileA"].map { "ExponentPushToken[\($0)]" }
  private static let payload = [
    "+5511987654321", "Planted Caller Name", "planted-apartment", "planted-building", "planted-metadata",
    "planted-channel",
  ]
  private static let userIDs = ["planted-user-ana"]
  private static let brokenValue = "planted-in-broken-yaml"
  private static let wrongKey = "pgk_1_plantedplantedplantedplantedplantedplanted"

  private static func call(_ id: String) -> String {
    """
    {"callId": "\(id)", "from": "\(payload[0])", "fromName": "\(payload[1])", "apartmentNumber": "\(payload[2])",
     "buildingName": "\(payload[3])", "channelName": "\(payload[5])",
     "metadata": {"schemaVersion": 1, "clientVersion": "\(payload[4])"}}
    """
  }

  private static var recipients: String {
    let devices =
      voip.map { #""voipPushToken": "\#($0)""# } + fcm.map { #""fcmToken": "\#($0)""# }
      + expo.map { #""pushToken": "\#($0)""# }
    let users = devices.enumerated().map { #"{"userId": "\#(userIDs[0])-\#($0)", \#($1)}"# }
    return "[" + users.joined(separator: ",") + "]"
  }

  /// Answers of providers that quote the request.
  private static var faults: FaultPlan {
    FaultPlan([
      FaultRule(
        provider: .oauth,
        fault: Fault(
          .answer(
            status: 400, reason: "invalid_grant",
            body: #"{"error": "\#(payload[4])!", "error_description": "\#(fcm[0])"}"#)),
        count: 1),
      FaultRule(
        provider: .apns, tokenPrefix: String(voip[1].prefix(8)),
        fault: Fault(.answer(status: 400, reason: "Hostile", body: #"{"reason": "\#(voip[1])"}"#))),
      FaultRule(provider: .fcm, tokenPrefix: "html", fault: Fault(.html), count: 2),
      FaultRule(
        provider: .fcm, tokenPrefix: "hostile",
        fault: Fault(
          .answer(
            status: 400, reason: "INVALID_ARGUMENT",
            body: #"""
              {"error": {"code": 400, "message": "\#(fcm[1]) \#(payload[1])", "status": "\#(fcm[1])", "details": [
                {"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": "\#(fcm[1])"}]}}
              """#))),
      FaultRule(
        provider: .expo, tokenPrefix: "hostile",
        fault: Fault(
          .answer(
            status: 400, reason: "VALIDATION_ERROR",
            body: #"{"errors": [{"code": "\#(expo[1])", "message": "\#(expo[1]) \#(payload[0])"}]}"#))),
    ])
  }

  /// Starts a program with all its parts at the level, and with everything that it needs.
  private func with(
    level: String, _ arguments: [String],
    _ body: (ServingProcess, TestDatabase, SimulatorMaterial, String) async throws -> Void
  ) async throws {
    try await TestDatabase.with(.migrated) { database in
      var url = try #require(URLComponents(string: database.url))
      url.password = Self.password
      let databaseURL = try #require(url.string)
      var configuration = SimulatorSuite.Configuration()
      configuration.database = databaseURL
      configuration.http = "127.0.0.1:0"
      configuration.requiresExpoAccessToken = true
      configuration.faults = Self.faults
      let simulators = try await SimulatorSuite.start(configuration, material: SimulatorMaterial())
      let file = simulators.material.configurationFile
      let text = try String(contentsOfFile: file, encoding: .utf8)
      try SecretFixture.write(
        text + "api:\n  enabled: true\n  listen: 127.0.0.1:0\nlog:\n  level: \(level)\n", to: file)
      do {
        let process = try ServingProcess(file, database: databaseURL, arguments)
        try await body(process, database, simulators.material, try String(contentsOfFile: file, encoding: .utf8))
      } catch {
        await simulators.stop()
        throw error
      }
      await simulators.stop()
    }
  }

  private func post(_ port: Int, _ body: String, key: String, _ headers: [String] = []) async throws -> APIAnswer {
    let socket = try TestSocket(port: port)
    defer { socket.close() }
    let head = [
      "POST /v1/calls HTTP/1.1", "Host: 127.0.0.1", "Connection: close", "Authorization: Bearer \(key)",
      "Content-Type: application/json", "Content-Length: \(body.utf8.count)",
    ]
    return APIAnswer(
      await socket.exchange(Array(((head + headers).joined(separator: "\r\n") + "\r\n\r\n" + body).utf8)))
  }

  @Test(arguments: LogFormat.allCases)
  func `no token, key, password or payload is in any line, whatever goes wrong`(_ format: LogFormat) async throws {
    try await with(level: "trace", ["--log-format", format.rawValue]) { process, database, material, configuration in
      let listening = try await process.line(with: "The API listens")
      let port = try #require(listening.firstMatch(of: /127\.0\.0\.1:(\d+)/).flatMap { Int($0.1) })
      _ = try await process.line(with: "The gateway serves")
      let key = try await database.value("select key from push.create_api_key('porteiro', 'test')")

      // Enqueued over HTTP, refused over HTTP, and over SQL.
      let body = #"{"payload": \#(Self.call("traced")), "recipients": \#(Self.recipients), "ringSeconds": 25}"#
      let answer = try await post(port, body, key: key, ["traceparent: 00-\(Self.trace)-00f067aa0ba902b7-01"])
      #expect(answer.status == 202)
      let wrong = body.replacingOccurrences(of: "traced", with: "wrong")
        .replacingOccurrences(of: #""from""#, with: #""From""#)
      #expect(try await post(port, wrong, key: key).status == 422)
      #expect(try await post(port, String(body.dropLast(5)), key: key).status == 400)
      #expect(try await post(port, body, key: Self.wrongKey).status == 401)
      let used = try await process.line(with: "A key was used")
      for part in ["key_id", "127.0.0.1", "enqueueCall", "202", "traced"] { #expect(used.contains(part), "\(used)") }
      let refused = try await process.line(with: "Requests were refused")
      for part in ["wrong_secret", "127.0.0.1", "enqueueCall", "401"] { #expect(refused.contains(part), "\(refused)") }
      _ = try await database.value(
        "select deliveries from push.enqueue_call('\(Self.call("plain"))', '\(Self.recipients)', 'porteiro', 25)")

      // The database goes away, and the configuration becomes invalid.
      try await database.execute(
        """
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'push-gateway%'
        """)
      let file = material.configurationFile
      try SecretFixture.write(
        configuration + "apps: [\(Self.brokenValue)\nlog: {level: \(Self.brokenValue)", to: file)
      process.hangUp()
      _ = try await process.line(with: "The configuration was not read again")
      try SecretFixture.write(configuration, to: file)

      try await database.wait(for: "select count(*) from push.delivery", toBe: "0", within: .seconds(180))
      let minted = try await database.value("select string_agg(token, ' ') from push.provider_tokens")
      // A delivery that expires in the outbox has no line: no gateway held it.
      let count = try await database.value("select count(*) from push.delivery_history where gateway is not null")
      let ended = try #require(Int(count))
      #expect(ended >= 16)  // of 20, but for tokens found dead in between
      _ = try await process.line(with: "A delivery has ended", count: ended)
      #expect(try await process.stop() == 0)

      let text = process.text
      #expect(text.last == "\n")
      let lines = text.split(separator: "\n")
      #expect(lines.count > ended + 5)
      let pem = try ["apns-key.p8", "fcm-key.pem", "server.key"].flatMap {
        try String(contentsOfFile: "\(material.directory)/\($0)", encoding: .utf8).split(separator: "\n")
          .filter { $0.count > 40 && !$0.contains("-") }.map(String.init)
      }
      #expect(pem.count > 20)
      let secrets =
        Self.voip + Self.fcm + Self.expo + Self.payload + Self.userIDs
        + [Self.password, Self.brokenValue, Self.wrongKey, key, material.expoAccessToken]
        + minted.split(separator: " ").map(String.init) + pem
      for secret in secrets {
        #expect(!text.contains(secret))
        // Nor does it contain half of a secret, as a truncated text might.
        #expect(!text.contains(secret.prefix(max(12, secret.count / 2))))
      }
      // The second token's pushes are repeated until they expire, usually in the outbox: that has no line.
      for token in [Self.voip[0], Self.voip[2]] { #expect(text.contains("\(token.prefix(4))…\(token.suffix(4))")) }
      if format == .json { try check(lines.map(String.init)) }
    }
  }

  /// Checks that every line is a JSON object, and that the outcomes are those of the history.
  private func check(_ lines: [String]) throws {
    let objects = try lines.map { line in
      let object = try? JSONSerialization.jsonObject(with: Data(line.utf8))
      return try #require(object as? [String: Any], "\(line.debugDescription)")
    }
    for object in objects {
      #expect((object["time"] as? String)?.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z/) != nil)
      #expect(object["level"] is String && object["message"] is String)
    }
    let ended = objects.filter { $0["message"] as? String == "A delivery has ended" }
    #expect(ended.contains { $0["outcome"] as? String == "delivered" && ($0["ms"] as? Double ?? -1) > 0 })
    #expect(ended.contains { $0["outcome"] as? String == "dead" && $0["reason"] as? String == "Unregistered" })
    for object in ended {
      #expect(object["trace_id"] as? String == (object["call_id"] as? String == "traced" ? Self.trace : nil))
      for key in ["app", "provider", "kind", "device"] { #expect(object[key] is String, "\(key)") }
      for key in ["outbox_id", "n", "attempts"] { #expect(object[key] is Int, "\(key)") }
    }
  }

  @Test func `the level follows the configuration file, without a restart`() async throws {
    try await with(level: "error", []) { process, database, material, configuration in
      try await database.wait(for: "select count(distinct provider) from push.lane", toBe: "4")
      func ring(_ call: String) async throws {
        _ = try await database.value(
          """
          select deliveries from push.enqueue_call('\(Self.call(call))',
            '[{"userId": "u", "fcmToken": "\(Self.fcm[0])"}]', 'porteiro')
          """)
      }
      try await ring("unseen")
      try await database.wait(for: "select count(*) from push.delivery_history", toBe: "1")
      func change(to level: String) throws {
        try SecretFixture.write(
          configuration.replacingOccurrences(of: "level: error", with: "level: \(level)"),
          to: material.configurationFile)
        process.hangUp()
      }
      try change(to: "info")
      // Standard error is not a terminal, so JSON is the default.
      #expect(try await process.line(with: "The log level has changed").hasSuffix(#""from":"error","to":"info"}"#))
      try await ring("seen")
      #expect(try await process.line(with: "A delivery has ended").contains(#""call_id":"seen""#))
      try change(to: "error")
      let last = try await process.line(with: "The log level has changed", count: 2)
      #expect(last.hasSuffix(#""from":"info","to":"error"}"#))
      #expect(try await process.stop() == 0)
      #expect(!process.text.contains("unseen"))
      #expect(!process.text.contains("The gateway has stopped"))
    }
  }
}

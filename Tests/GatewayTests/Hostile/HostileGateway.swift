// A gateway in a process of its own, whose lanes send to scripted peers. One further app has normal providers.

import Foundation
import HTTP2TestSupport
import Queue
import Runtime
import Simulators
import TestProcess
import TestSupport
import TestTime
import Testing

@testable import Gateway

/// The process, its database, its peers, and the neighbour's simulators.
struct HostileGateway {
  /// The app whose providers are normal.
  static let neighbour = "porteiro"

  /// One finished delivery, from push.delivery_history.
  struct Story: Sendable {
    var outcome: String
    var attempts: Int
    /// Seconds from the commit to the acceptance, or to the end.
    var seconds: Double
    /// Reasons of the failed attempts, the last one at the end.
    var reasons: String
  }

  let database: TestDatabase
  let simulators: SimulatorSuite
  private let connection: PostgresConnection
  private let process: Process

  struct Failure: Error, CustomStringConvertible { let description: String }

  /// Starts everything, runs `body`, and stops everything.
  ///
  /// - Parameters:
  ///   - host: the numeric address by which the gateway reaches the hostile peers.
  ///   - makePeers: app and peer of each hostile lane.
  static func with(
    host: String = "127.0.0.1",
    makePeers: (SimulatorMaterial) async throws -> [(app: String, peer: ScriptedPeer)],
    _ body: (HostileGateway, [(app: String, peer: ScriptedPeer)]) async throws -> Void
  ) async throws {
    try await TestDatabase.with(.migrated) { database in
      let connection = try await database.connect()
      let material = try SimulatorMaterial(hosts: [host])
      var configuration = SimulatorSuite.Configuration()
      configuration.database = database.url
      configuration.http = "127.0.0.1:0"
      configuration.requiresExpoAccessToken = true
      let simulators = try await SimulatorSuite.start(configuration, material: material)
      let apps = try await makePeers(material)
      try append(apps, at: host, to: material, simulators.endpoints)
      let process = OperationsFixture.process(
        database.url, ["serve", "--config", material.configurationFile, "--log-format", "text"])
      let log = FileManager.default.temporaryDirectory.appending(path: "push-gateway-hostile-\(UUID().uuidString).log")
      _ = FileManager.default.createFile(atPath: log.path(), contents: nil)
      process.standardError = try FileHandle(forWritingTo: log)
      process.standardOutput = FileHandle.nullDevice
      try process.start()
      let gateway = HostileGateway(
        database: database, simulators: simulators, connection: connection, process: process)
      var failure: (any Error)?
      do {
        // Calls of an app are accepted once the gateway has registered the app.
        let registered = PostgresStatement(name: "registered", text: "select count(*)::int from push.apps")
        try await eventually("the apps are registered") {
          try await connection.query(registered).int32(0, 0) > Set(apps.map(\.app)).count || !process.isRunning
        }
        try await body(gateway, apps)
        #expect(process.isRunning, "the gateway has died: \(tail(of: log))")
      } catch {
        failure = error
      }
      for (_, peer) in apps { await peer.perform { $0.close() } }
      await gateway.stop()
      await connection.close()
      await simulators.stop()
      if let failure { throw Failure(description: "\(failure); the gateway's log ends: \(tail(of: log))") }
      try? FileManager.default.removeItem(at: log)
      try? FileManager.default.removeItem(atPath: material.directory)
    }
  }

  private static func tail(of log: URL) -> String {
    String(((try? String(contentsOf: log, encoding: .utf8)) ?? "").suffix(2000))
  }

  private func stop() async {
    process.terminate()
    try? await eventually("the gateway has ended") { !process.isRunning }
    if process.isRunning { kill(process.processIdentifier, SIGKILL) }
  }

  /// Each hostile lane has one connection, and the neighbour's credentials. No missed call is announced: its requests would be counted.
  private static func append(
    _ apps: [(app: String, peer: ScriptedPeer)], at host: String, to material: SimulatorMaterial,
    _ endpoints: SimulatorEndpoints
  ) throws {
    var text = try String(contentsOfFile: material.configurationFile, encoding: .utf8)
    var last = ""
    for (app, peer) in apps {
      let url = "https://\(host):\(peer.port)"
      if app != last { text += "  \(app):\n    dialect: intercom\n    missed_calls: off\n" }
      last = app
      text += "    \(peer.provider.rawValue):\n"
      switch peer.provider {
      case .apns:
        let identity = material.identity
        text += """
                team_id: \(identity.teamID)
                key_id: \(identity.keyID)
                key_file: "\(material.apnsKeyFile)"
                topic: \(identity.topic)
                production_url: \(url)
                sandbox_url: \(endpoints.apnsSandbox)
                connections: 1

          """
      case .fcm:
        text += """
                service_account_file: "\(material.serviceAccountFile)"
                url: \(url)
                connections: 1

          """
      case .expo: text += "      url: \(url)\n"
      }
    }
    try SecretFixture.write(text, to: material.configurationFile)
  }

  // MARK: - Calls

  private static func recipient(_ provider: ScriptedPeer.Provider) -> String {
    switch provider {
    case .apns: #"{"userId": "ios", "voipPushToken": "\#(String(repeating: "ab", count: 32))"}"#
    case .fcm: #"{"userId": "android", "fcmToken": "cQ7mZl2pR0uX:APA91bHexample-token"}"#
    case .expo: #"{"userId": "expo", "pushToken": "ExponentPushToken[aBcDeFgHiJkLmNoPqRsTuV]"}"#
    }
  }

  /// Commits one call for each app, to one device for each of its lanes.
  func call(_ callID: String, _ lanes: [HostileLane], ringSeconds: Int = 30) async throws {
    let rows = Dictionary(grouping: lanes, by: \.app).sorted { $0.key < $1.key }.map { app, lanes in
      let devices = lanes.map { Self.recipient($0.peer.provider) }.joined(separator: ", ")
      return #"('\#(app)', '{"callId": "\#(callID)", "from": "doorman"}', '[\#(devices)]', \#(ringSeconds))"#
    }
    try await connection.script(
      "insert into push.outbox (app, payload, recipients, ring_seconds) values \(rows.joined(separator: ", "))")
  }

  /// Commits one call of three devices for the neighbour.
  func callNeighbour(_ callID: String, over other: PostgresConnection? = nil) async throws {
    let devices = ScriptedPeer.Provider.allCases.map(Self.recipient).joined(separator: ", ")
    try await (other ?? connection).script(
      """
      insert into push.outbox (app, payload, recipients, ring_seconds)
      values ('\(Self.neighbour)', '{"callId": "\(callID)", "from": "doorman"}', '[\(devices)]', 30)
      """)
  }

  /// The finished deliveries of a call, by lane.
  func stories(of callID: String) async throws -> [String: Story] {
    let rows = try await connection.query(
      PostgresStatement(
        name: "stories \(callID)",
        text: """
          select concat_ws(' ', app, provider), outcome, attempts::text,
            extract(epoch from coalesce(answered_at, finished_at) - created_at)::text,
            concat_ws(', ', (select string_agg(f ->> 'reason', ', ' order by o)
              from jsonb_array_elements(failures) with ordinality as t(f, o)), reason)
          from push.delivery_history where call_id = '\(callID)' and kind = 'invite' order by app, provider
          """))
    var stories: [String: Story] = [:]
    for row in 0..<rows.rowCount {
      stories[rows.text(row, 0)] = Story(
        outcome: rows.text(row, 1), attempts: Int(rows.text(row, 2)) ?? 0, seconds: Double(rows.text(row, 3)) ?? 0,
        reasons: rows.text(row, 4))
    }
    return stories
  }

  /// Waits until this call has ended on a number of lanes. If it has not after this time, `stories` shows what is missing.
  func waitForEnds(of callID: String, _ count: Int, within limit: Duration = .seconds(75)) async throws {
    let ended = PostgresStatement(
      name: "ended \(callID)",
      text: "select count(*)::text from push.delivery_history where call_id = '\(callID)' and kind = 'invite'")
    do {
      try await eventually("\(callID) has ended", within: limit, every: .milliseconds(20)) {
        Int(try await connection.query(ended).text(0, 0)) ?? 0 >= count
      }
    } catch is NotYet {}
  }

  /// The neighbour's calls whose ids begin with `prefix`: number of finished deliveries, those that were not delivered
  /// at the first attempt, and the longest time from commit to acceptance, in seconds. Unless the time limits are strict, an attempt that
  /// a busy machine answered late does not count.
  func neighbour(_ prefix: String) async throws -> (count: Int, troubled: String, worst: Double) {
    let row = try await connection.query(
      PostgresStatement(
        name: "neighbour \(prefix)",
        text: """
          select count(*)::text,
            coalesce(string_agg(concat_ws(' ', call_id, provider, outcome, attempts, reason), ', '
              order by call_id, provider) filter (where outcome <> 'delivered'
                or attempts > 1 and (\(HostileTable.isStrict)
                  or exists (select from jsonb_array_elements(failures) f where f ->> 'reason' <> 'TimedOut'))), ''),
            coalesce(max(extract(epoch from answered_at - created_at)), 0)::text
          from push.delivery_history
          where app = '\(Self.neighbour)' and kind = 'invite' and starts_with(call_id, '\(prefix)')
          """))
    return (Int(row.text(0, 0)) ?? 0, row.text(0, 1), Double(row.text(0, 2)) ?? 0)
  }

  // MARK: - Resources

  /// CPU seconds since the process began; nil if there is no /proc.
  func cpuSeconds() -> Double? {
    guard let text = try? String(contentsOfFile: "/proc/\(process.processIdentifier)/stat", encoding: .utf8),
      let end = text.lastIndex(of: ")")
    else { return nil }
    let fields = text[end...].split(separator: " ")
    guard fields.count > 13, let user = Double(fields[12]), let system = Double(fields[13]) else { return nil }
    return (user + system) / Double(sysconf(Int32(_SC_CLK_TCK)))
  }

  /// Resets the measured peak of memory.
  func resetPeak() {
    try? "5".write(toFile: "/proc/\(process.processIdentifier)/clear_refs", atomically: false, encoding: .utf8)
  }

  /// Resident megabytes, now and at the peak since `resetPeak`; nil if there is no /proc.
  func megabytes() -> (now: Double, peak: Double)? {
    guard let text = try? String(contentsOfFile: "/proc/\(process.processIdentifier)/status", encoding: .utf8) else {
      return nil
    }
    func value(_ name: String) -> Double? {
      text.split(separator: "\n").first { $0.hasPrefix(name) }
        .flatMap { Double($0.filter(\.isNumber)) }.map { $0 / 1024 }
    }
    guard let now = value("VmRSS:"), let peak = value("VmHWM:") else { return nil }
    return (now, peak)
  }
}

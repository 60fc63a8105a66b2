// Apps that are added, changed and removed while the gateway runs.

import Foundation
import HTTPSurfaceTestSupport
import Queue
import Simulators
import TestSupport
import TestTime
import Testing

@testable import Gateway
@testable import HTTPSurface
@testable import Settings

@Suite("App changes", .timeLimit(.minutes(10))) struct AppChangesTests {
  private static func zelador(_ gateway: GatewayHarness, ringSeconds: Int = GatewayHarness.ringSeconds) -> String {
    let endpoint = gateway.settings.apps[0].expo!.url.description
    let token = gateway.simulators.material.expoAccessTokenFile
    return """
        zelador:
          ring_seconds: \(ringSeconds)
          expo: { url: "\(endpoint)", access_token_file: "\(token)" }

      """
  }

  /// Changes the ring window of the app.
  private static func setRingSeconds(_ seconds: Int, _ gateway: GatewayHarness) throws {
    try gateway.editConfiguration { $0.replacing(/ring_seconds: [0-9]+/, with: "ring_seconds: \(seconds)") }
  }

  private static func enqueue(_ callID: String, app: String, _ gateway: GatewayHarness) async throws {
    _ = try await gateway.database.value(
      """
      select deliveries from push.enqueue_call('\(GatewayHarness.baseCallData(callID))',
        '[{"userId": "expo", "pushToken": "ExponentPushToken[aBcDeFgHiJkLmNoPqRsTuV]", "platform": "android"}]', '\(app)')
      """)
  }

  private static let apps = "select string_agg(concat_ws(' ', app, ring_seconds), ',' order by app) from push.apps"

  @Test("a new app is served at once, over its own connections; the other app's calls ring on over the ones it has")
  func added() async throws {
    try await GatewayHarness.with(watchesFiles: true) { gateway in
      try await gateway.enqueue("before")
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(1)
      let connections = await gateway.simulators.apnsProduction.counters.connections
      try gateway.editConfiguration { $0.replacing("apps:\n", with: "apps:\n" + Self.zelador(gateway)) }
      async let calls: Void = {
        for call in 0..<100 { try await gateway.enqueue("during-\(call)") }
      }()
      await gateway.service.reload()
      try await gateway.database.wait(for: Self.apps, toBe: "porteiro 600,zelador 600")
      try await Self.enqueue("of-the-new-app", app: "zelador", gateway)
      try await calls
      _ = try await gateway.simulators.expo.waitForAccepted(102)
      try await gateway.settled()
      try await gateway.expectOutcomes("apns delivered 101,expo delivered 102,fcm delivered 101")
      // A busy machine may answer so late that a connection is doubted and replaced.
      let exposition = try MetricsExposition(await gateway.metrics.exposition(.prometheus, readiness: .ready), false)
      let replaced = Int(exposition.sum("push_gateway_connections_replaced_total", ["provider": "apns"]))
      #expect(await gateway.simulators.apnsProduction.counters.connections <= connections + replaced)
      #expect(try await gateway.unrecordedPushes() == [:])
      // The former service retires after its pushes.
      try await gateway.database.wait(for: "select count(*) from push.gateways where alive", toBe: "1")
    }
  }

  @Test("a change whose start gets no answer from the database is tried again, and does not keep a stop waiting")
  func unanswered() async throws {
    try await GatewayHarness.with(watchesFiles: true) { gateway in
      let ops = try await gateway.database.connect()
      // The check of the schema waits for this lock for as long as it lasts.
      try await ops.script("begin; lock table push.schema_functions in access exclusive mode")
      try gateway.editConfiguration { $0.replacing("ring_seconds: 600", with: "ring_seconds: 500") }
      await gateway.service.reload()
      var starts: Set<String> = []
      try await eventually("a second start") {
        let found = try await gateway.database.value(
          "select coalesce(max(pid), 0) from pg_stat_activity where application_name = 'push-gateway start' "
            + "and datname = current_database() and wait_event_type = 'Lock'")
        if found != "0" { starts.insert(found) }
        return starts.count == 2
      }
      try await gateway.enqueue("rings")
      _ = try await gateway.simulators.fcm.waitForAccepted(1)
      try await gateway.stop()
      #expect(try await gateway.database.value(Self.apps) == "porteiro 600")
      await ops.close()
    }
  }

  @Test("many changes while former services wait for their pushes take a limited number of connections")
  func manyChanges() async throws {
    try await GatewayHarness.with(watchesFiles: true, patience: nil) { gateway in
      let connections =
        "select count(*) from pg_stat_activity where application_name similar to "
        + "'push-gateway (claims|settlements|control|maintenance|jobs|listener)' and datname = current_database()"
      let requests = await gateway.simulators.fcm.counters.requests
      await gateway.simulators.fcm.setFaults(FaultPlan([FaultRule(provider: .fcm, fault: Fault(.hang))]))
      var most = 0
      func applied(_ change: Int, within limit: Duration) async throws {
        try await eventually("change \(change) holds", within: limit) {
          most = max(most, Int(try await gateway.database.value(connections)) ?? 0)
          return try await gateway.database.value(Self.apps) == "porteiro \(600 - change)"
        }
      }
      for change in 1...6 {
        try await gateway.enqueue("hangs-\(change)")
        try await eventually("the call is sent") {
          await gateway.simulators.fcm.counters.requests >= requests + change
        }
        try Self.setRingSeconds(600 - change, gateway)
        await gateway.service.reload()
        // Later changes wait for former services.
        do { try await applied(change, within: .seconds(2)) } catch is NotYet {}
      }
      await gateway.simulators.fcm.setFaults(FaultPlan([]))
      try await applied(6, within: .seconds(120))
      // Those of four services, and of one more whose sessions are ending. Without a limit there were seven.
      #expect(most <= 30)
    }
  }

  @Test("a crashed gateway is declared dead while one change follows the other")
  func crashAmongChanges() async throws {
    try await GatewayHarness.with(watchesFiles: true, reaps: true) { gateway in
      // It sends no heartbeat.
      _ = try await gateway.database.value("push.register_gateway('crashed', '0')")
      var change = 0
      try await eventually("it is dead", within: .seconds(300), every: .seconds(1)) {
        change += 1
        try Self.setRingSeconds(30 + change % 2, gateway)
        await gateway.service.reload()
        return try await gateway.database.value("select alive from push.gateways where name = 'crashed'") == "false"
      }
    }
  }

  @Test("a quota holds as soon as the configuration has it, is counted when it refuses, and goes with it")
  func quota() async throws {
    try await GatewayHarness.with(watchesFiles: true) { gateway in
      let original = try String(contentsOfFile: gateway.simulators.material.configurationFile, encoding: .utf8)
      let app = Self.zelador(gateway)
      func apply(_ text: String, until limit: String) async throws {
        try gateway.editConfiguration { _ in original.replacing("apps:\n", with: "apps:\n" + text) }
        await gateway.service.reload()
        let held = """
          select coalesce((select q.limits[1]::text from push.quota q where q.app = 'zelador'), 'none')
            || (select count(*) from push.apps where app = 'zelador')
          """
        try await gateway.database.wait(for: held, toBe: limit + "1")
      }
      func refusals() async throws -> Double {
        let exposition = try MetricsExposition(await gateway.metrics.exposition(.prometheus, readiness: .ready), false)
        return exposition.sum("push_gateway_quota_refusals_total", ["app": "zelador"])
      }
      try await apply(app, until: "none")
      try await Self.enqueue("free", app: "zelador", gateway)
      #expect(try await refusals() == 0, "the series is there before anything is refused")
      try await apply(app.replacing("expo:", with: "quota: { calls_per_minute: 2 }\n    expo:"), until: "2")
      try await Self.enqueue("first", app: "zelador", gateway)
      try await Self.enqueue("second", app: "zelador", gateway)
      await #expect(throws: (any Error).self) { try await Self.enqueue("third", app: "zelador", gateway) }
      try await eventually("the refusal is counted") { try await refusals() == 1 }
      // A scrape does not wait for a database that is slow.
      try await eventually("what is used is shown") {
        let used = try MetricsExposition(await gateway.metrics.exposition(.prometheus, readiness: .ready), false)
        return used.sum("push_gateway_quota_used_ratio", ["app": "porteiro"]) == 0
          && used.samples.keys.contains { $0.hasPrefix("push_gateway_quota_used_ratio") && $0.contains("zelador") }
      }
      try await apply(app, until: "none")
      try await Self.enqueue("third", app: "zelador", gateway)
      _ = try await gateway.simulators.expo.waitForAccepted(4)
    }
  }

  @Test("a changed setting holds from then on, and a removed app is served no longer")
  func changedAndRemoved() async throws {
    try await GatewayHarness.with(watchesFiles: true) { gateway in
      let original = try String(contentsOfFile: gateway.simulators.material.configurationFile, encoding: .utf8)
      try gateway.editConfiguration {
        $0.replacing("apps:\n", with: "apps:\n" + Self.zelador(gateway, ringSeconds: 20))
      }
      await gateway.service.reload()
      try await gateway.database.wait(for: Self.apps, toBe: "porteiro 600,zelador 20")
      try gateway.editConfiguration { _ in
        original.replacing("apps:\n", with: "apps:\n" + Self.zelador(gateway, ringSeconds: 30))
      }
      await gateway.service.reload()
      try await gateway.database.wait(for: Self.apps, toBe: "porteiro 600,zelador 30")
      try gateway.editConfiguration { _ in original }
      await gateway.service.reload()
      // The former service has ended: one gateway is left, and it has no lane of the removed app. How many there were is not known: one
      // that was stopped for seconds registers again.
      try await gateway.database.wait(
        for: """
          select count(distinct g.id) = 1 and bool_or(l.app = 'porteiro') and not bool_or(l.app = 'zelador')
          from push.gateways g left join push.lane_status s on s.gateway = g.id left join push.lane l on l.id = s.lane where g.alive
          """)
      try await Self.enqueue("of-nobody", app: "zelador", gateway)
      try await gateway.enqueue("rings")
      _ = try await gateway.simulators.expo.waitForAccepted(1)
      #expect(
        try await gateway.database.value(
          "select count(*) from push.delivery where outbox_id in (select id from push.outbox where app = 'zelador')")
          == "1")
    }
  }
}

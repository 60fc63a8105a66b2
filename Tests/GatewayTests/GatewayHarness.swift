// A whole gateway for a test: a database, simulators, and `serve` as a process or in this one.

import Dispatching
import Foundation
import HTTP2TestSupport
import Logging
import Queue
import Runtime
import ServiceLifecycle
import Simulators
import Synchronization
import TestSupport
import TestTime
import Testing

@testable import Gateway
@testable import HTTPSurface
@testable import Settings

/// A gateway with everything that it needs.
struct GatewayHarness {
  let database: TestDatabase
  let simulators: SimulatorSuite
  let settings: GatewayConfiguration
  let service: GatewayService
  private let dispatching: DispatcherSettings
  private let group: ServiceGroup
  private let running: Task<Void, any Error>

  /// Starts everything, runs `body`, and stops everything. Fails if the gateway ends with an error.
  ///
  /// - Parameters:
  ///   - watchesFiles: whether the gateway reads its credentials again when their files change.
  ///   - given: the database, with the schema; nil: a new one in the cluster of all tests.
  ///   - hedges: whether invites are hedged. Off where requests are counted, because a busy machine would cause some
  ///     hedges.
  ///   - patience: how long a ring waits for an answer before it is handed on, which would send it again and count an attempt more; nil:
  ///     as in a real gateway.
  ///   - reaps: whether a gateway is declared dead after three seconds, as in a real database, and not after a minute.
  static func with(
    simulators configuration: SimulatorSuite.Configuration = strict,
    on given: TestDatabase? = nil, watchesFiles: Bool = false, hedges: Bool = false,
    patience: Nanoseconds? = .seconds(60), reaps: Bool = false,
    adjust: (inout GatewayConfiguration) -> Void = { _ in },
    _ body: (GatewayHarness) async throws -> Void
  ) async throws {
    guard let given else {
      return try await TestDatabase.with(.migrated) {
        try await with(
          simulators: configuration, on: $0, watchesFiles: watchesFiles, hedges: hedges, patience: patience,
          reaps: reaps, adjust: adjust, body)
      }
    }
    var dispatching = DispatcherSettings()
    // A token is tried in the other environment for as long as a request may take.
    dispatching.policy.environmentProbe = .seconds(30)
    if let patience { dispatching.policy.patience = patience...patience }
    try await serve(configuration, given, watchesFiles, hedges, reaps, dispatching, adjust, body)
  }

  private static func serve(
    _ configuration: SimulatorSuite.Configuration, _ database: TestDatabase, _ watchesFiles: Bool, _ hedges: Bool,
    _ reaps: Bool, _ dispatching: DispatcherSettings, _ adjust: (inout GatewayConfiguration) -> Void,
    _ body: (GatewayHarness) async throws -> Void
  ) async throws {
    if !reaps { try await database.execute(Self.longSilence) }
    var configuration = configuration
    configuration.database = database.url
    configuration.http = "127.0.0.1:0"
    configuration.requiresExpoAccessToken = true
    let simulators = try await SimulatorSuite.start(configuration, material: SimulatorMaterial())
    try change(simulators.material.configurationFile) { configuration in
      let configuration = configuration.replacing("ring_seconds: 60", with: "ring_seconds: \(ringSeconds)")
      return hedges ? configuration : withoutHedges(configuration)
    }
    var settings = try GatewayConfiguration.load(file: simulators.material.configurationFile, environment: [:])
    adjust(&settings)
    var logger = Logger(label: "gateway", factory: { StreamLogHandler.standardError(label: $0) })
    logger.logLevel = .error
    let source = ConfigurationFile(path: simulators.material.configurationFile, environment: [:])
    let service = GatewayService(
      configuration: settings, source: watchesFiles ? source : nil, logger: logger, dispatching: dispatching)
    let group = ServiceGroup(services: [service], logger: logger)
    let hasEnded = Mutex(false)
    let running = Task {
      defer { hasEnded.withLock { $0 = true } }
      try await group.run()
    }
    let harness = GatewayHarness(
      database: database, simulators: simulators, settings: settings, service: service, dispatching: dispatching,
      group: group, running: running)
    do {
      try await eventually("the gateway is ready") {
        if hasEnded.withLock({ $0 }) { try await running.value }  // throws why it did not start
        return await service.readiness() == .ready
      }
      try await body(harness)
    } catch {
      _ = try? await harness.stop()
      await simulators.stop()
      throw error
    }
    try await harness.stop()
    await simulators.stop()
  }

  /// A gateway whose heartbeats come late because the machine is busy is not declared dead, which would send its pushes again.
  private static let longSilence = """
    do $$
    begin
      execute replace(pg_get_functiondef('push.beat'::regproc), '''00:00:03''', '''1 min''');
    end
    $$
    """

  /// The ring window of the app: longer than a busy machine needs, because users get missed calls when it ends.
  static let ringSeconds = 600

  private static func withoutHedges(_ configuration: String) -> String {
    ["apns", "fcm"].reduce(configuration) {
      $0.replacing("    \($1):\n", with: "    \($1):\n      hedged_percent_max: 0\n")
    }
  }

  private static func change(_ file: String, _ change: (String) -> String) throws {
    try SecretFixture.write(change(try String(contentsOfFile: file, encoding: .utf8)), to: file)
  }

  /// Changes the configuration file, which a gateway that watches files takes over.
  func editConfiguration(_ change: (String) -> String) throws {
    try Self.change(simulators.material.configurationFile, change)
  }

  /// Simulators that refuse calls that Android would show, which Google accepts. No shipped dialect sends one.
  static var strict: SimulatorSuite.Configuration {
    var configuration = SimulatorSuite.Configuration()
    configuration.requiresDataOnly = true
    return configuration
  }

  /// The metrics that the gateway serves.
  var metrics: Metrics { service.metrics }

  /// Shuts the gateway down gracefully. Throws the error that it ended with.
  func stop() async throws {
    await group.triggerGracefulShutdown()
    try await running.value
  }

  /// Runs `body` with a number of further gateways on the same database and configuration.
  func withReplicas(_ count: Int, _ body: ([GatewayService]) async throws -> Void) async throws {
    var logger = Logger(label: "replica", factory: { StreamLogHandler.standardError(label: $0) })
    logger.logLevel = .error
    let services = (0..<count).map { _ in
      GatewayService(configuration: settings, logger: logger, dispatching: dispatching)
    }
    let group = ServiceGroup(services: services, logger: logger)
    let running = Task { try await group.run() }
    for service in services {
      try await eventually("the replica is ready") { await service.readiness() == .ready }
    }
    try await body(services)
    await group.triggerGracefulShutdown()
    try await running.value
  }

  /// Waits until no delivery is pending, and nothing that follows from one is due: longer than any call of a test rings.
  func settled() async throws {
    let connection = try await database.connect()
    let left = PostgresStatement(name: "left", text: "select exists (select from push.delivery) or \(Self.isNoteDue)")
    try await eventually("no delivery is pending", within: .seconds(180)) {
      try await !connection.query(left).bool(0, 0)
    }
    await connection.close()
  }

  /// Waits until the gateway has done what follows from the changes of calls that were committed before.
  func followed() async throws {
    try await database.wait(for: Self.isNoteDue, toBe: "false")
  }

  /// A note that failed because the machine was slow is tried again; one that fails every time is not waited for.
  private static let isNoteDue = """
    exists (select from push.follow_ups f where f.tries < 4 and (f.why <> 'unheard' or f.due_at <= clock_timestamp()))
    """

  /// Ends the ring window of a call now. A test that needs its invites to be sent first rings for long and calls this after them:
  /// a busy machine may take longer to send than a short window lasts.
  func lapse(_ callID: String) async throws {
    try await database.execute(
      """
      do $$
      begin
        perform set_config('session_replication_role', 'replica', true);  -- The triggers refuse another deadline.
        update push.outbox set deadline_at = clock_timestamp() where call_id = '\(callID)';
        update push.delivery d set deadline_at = o.deadline_at, due_at = least(d.due_at, o.deadline_at)
          from push.outbox o where o.id = d.outbox_id and o.call_id = '\(callID)';
      end $$
      """)
  }

  /// `outcome count`, one a line, sorted by name.
  func outcomes() async throws -> String {
    try await database.value(
      """
      select coalesce(string_agg(line, ',' order by line), '') from (
        select concat_ws(' ', provider, outcome, count(*)) as line from push.delivery_history group by provider, outcome) t
      """)
  }

  /// Expects these outcomes. Otherwise the others are shown, with their reasons.
  func expectOutcomes(_ expected: String, sourceLocation: SourceLocation = #_sourceLocation) async throws {
    let outcomes = try await outcomes()
    guard outcomes != expected else { return }
    let others = try await database.value(
      """
      select coalesce(string_agg(concat_ws(' ', call_id, kind, provider, outcome, attempts, reason, failures), '; '), '')
      from push.delivery_history where outcome <> 'delivered' or kind <> 'invite'
      """)
    Issue.record("\(outcomes), not \(expected): \(others)", sourceLocation: sourceLocation)
  }

  /// The example call of the Porteiro backend: a resident on each provider.
  static let residents = """
    [{"userId": "ios", "voipPushToken": "\(String(repeating: "ab", count: 32))", "platform": "ios", "notificationEnabled": true},
     {"userId": "android", "fcmToken": "cQ7mZl2pR0uX:APA91bHexample-token", "platform": "android"},
     {"userId": "expo", "pushToken": "ExponentPushToken[aBcDeFgHiJkLmNoPqRsTuV]", "platform": "android"}]
    """

  static func baseCallData(_ callID: String) -> String {
    """
    {"callId": "\(callID)", "from": "8d0b1a52-5c1f-4d7c-9b7a-0f9f6d2f4c11", "fromName": "Portaria", "apartmentNumber": "42",
     "buildingName": "Torre Norte", "channelName": "call-\(callID)", "metadata": {"schemaVersion": 1, "clientVersion": null}}
    """
  }

  func enqueue(_ callID: String) async throws {
    _ = try await database.value(
      "select deliveries from push.enqueue_call('\(Self.baseCallData(callID))', '\(Self.residents)', 'porteiro')")
  }

  /// SQL that inserts `count` calls of three devices each in one statement. Every device has a token of its own. They ring for longer
  /// than a busy machine needs.
  static func bulk(_ count: Int, ringSeconds: Int = 600) -> String {
    """
    insert into push.outbox (app, ring_seconds, payload, recipients)
    select 'porteiro', \(ringSeconds), jsonb_build_object('callId', 'bulk-' || i, 'from', 'doorman', 'fromName', 'Portaria'),
      jsonb_build_array(
        jsonb_build_object('userId', 'ios-' || i, 'voipPushToken', lpad(to_hex(i), 64, '0')),
        jsonb_build_object('userId', 'android-' || i, 'fcmToken', 'android-token-of-device-' || i),
        jsonb_build_object('userId', 'expo-' || i, 'pushToken', 'ExponentPushToken[' || lpad(i::text, 22, '0') || ']'))
    from generate_series(1, \(count)) i;
    """
  }

  /// Number of pushes to each token, over all providers.
  func pushesByToken() async -> [String: Int] {
    var counts: [String: Int] = [:]
    for server in [simulators.apnsProduction, simulators.apnsSandbox, simulators.fcm, simulators.expo] {
      for push in await server.accepted { counts[push.token, default: 0] += 1 }
    }
    return counts
  }

  /// Tokens with more pushes than history has attempts for: none. Each push is sent once, unless it was hedged or tried again, and a busy
  /// machine may answer so late that it is.
  func unrecordedPushes() async throws -> [String: Int] {
    let recorded = try await database.value(
      """
      select coalesce(jsonb_object_agg(h.token, h.tries), '{}') from (
        select h.token, sum(h.attempts + (h.reason is not distinct from 'Hedged')::int) as tries from push.history h group by h.token) h
      """)
    let tries = try JSONDecoder().decode([String: Int].self, from: Data(recorded.utf8))
    return await pushesByToken().filter { $0.value > tries[$0.key] ?? 0 }
  }

  /// Number of requests that the simulators refused, by reason.
  func refusals() async -> [String: Int] {
    var refusals: [String: Int] = [:]
    for server in [simulators.apnsProduction, simulators.apnsSandbox, simulators.fcm, simulators.expo] {
      refusals.merge(await server.counters.refused) { $0 + $1 }
    }
    return refusals
  }
}

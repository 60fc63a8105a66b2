import HTTP2TestSupport
import Logging
import Runtime
import TestSupport
import TestTime
import Testing

@testable import Queue

@Suite("Reaching Postgres", .timeLimit(.minutes(10)))
struct PostgresReachabilityTests {
  private static let one = PostgresStatement(name: "one", sql: "select 1")

  /// The database's URL with other hosts.
  private func url(_ database: TestDatabase, _ places: String, _ more: String = "") -> String {
    "postgres://push@\(places)/\(database.name)?sslmode=disable&gssencmode=disable\(more)"
  }

  private func port(_ database: TestDatabase) throws -> UInt16 {
    let place = try #require(database.url.split(separator: "@").last?.split(separator: "/").first)
    return try #require(UInt16(place.split(separator: ":").last ?? ""))
  }

  private func withRelay(_ body: (TestDatabase, TCPRelay) async throws -> Void) async throws {
    try await TestDatabase.with { database in
      let relay = try TCPRelay(to: port(database))
      defer { relay.stop() }
      try await body(database, relay)
    }
  }

  private func outbox(_ url: String, on loop: EventLoop) async -> (PostgresOutbox, EventStream) {
    let options = PostgresOutbox.Options(url: url, name: "test", version: "0")
    let outbox = PostgresOutbox(options: options, loop: loop, logger: Logger(label: "test"))
    let events = EventStream()
    await outbox.open { events.report($0) }
    return (outbox, events)
  }

  @Test("a server that accepts the connection and stays silent is given up in time")
  func silentFromTheStart() async throws {
    try await withRelay { database, relay in
      relay.fallSilent()
      let url = self.url(database, "127.0.0.1:\(relay.port)", "&connect_timeout=1")
      let asked = database.loop.now
      let error = await #expect(throws: PostgresError.self) {
        try await PostgresConnection.connect(to: url, applicationName: "tests", on: database.loop)
      }
      #expect(error?.code == .connectionFailed)
      let time = database.loop.now - asked
      #expect(time < .seconds(34), "\(time.milliseconds) ms")
    }
  }

  @Test("an answer that is late is lost, and so is the connection with all pending statements")
  func lostAnswer() async throws {
    try await withRelay { database, relay in
      let url = self.url(database, "127.0.0.1:\(relay.port)")
      let connection = try await PostgresConnection.connect(to: url, applicationName: "tests", on: database.loop)
      #expect(try await connection.query(Self.one, patience: .seconds(60)).int32(0, 0) == 1)
      relay.fallSilent()
      let asked = database.loop.now
      let other = Task { try await connection.query(Self.one, patience: .milliseconds(400)) }
      let error = await #expect(throws: PostgresError.self) {
        try await connection.query(Self.one, patience: .milliseconds(300))
      }
      #expect(error?.code == .connectionLost)
      await #expect(throws: PostgresError.self) { try await other.value }
      let time = database.loop.now - asked
      #expect(time < .seconds(35), "\(time.milliseconds) ms")
    }
  }

  @Test("the timeout of a queued statement starts when it is its turn")
  func patience() async throws {
    try await TestDatabase.with(.empty) { database in
      let clock = ManualClock()
      let loop = EventLoop(name: "patience", clock: clock)
      defer { loop.stop() }
      let locks = 1...2
      let waits = """
        from pg_locks where not granted and locktype = 'advisory'
          and database = (select oid from pg_database where datname = current_database())
        """
      let holder = try await database.connect()
      for lock in locks { try await holder.script("select pg_advisory_lock(\(lock))") }
      let connection = try await PostgresConnection.connect(to: database.url, applicationName: "tests", on: loop)
      try await withThrowingTaskGroup { group in
        for lock in locks {
          let wait = PostgresStatement(name: "wait \(lock)", text: "select 1 from pg_advisory_lock(\(lock))")
          group.addTask { _ = try await connection.query(wait, patience: .seconds(10)) }
        }
        // The two may come in any order.
        for _ in locks {
          try await database.wait(for: "select count(*) \(waits)", toBe: "1")
          let lock = try await database.value("select objid \(waits)")
          clock.advance(.seconds(9))
          await withCheckedContinuation { continuation in loop.execute { continuation.resume() } }
          try await holder.script("select pg_advisory_unlock(\(lock))")
        }
        try await group.waitForAll()
      }
      await connection.close()
      await holder.close()
    }
  }

  @Test("a claim without an answer is lost within seconds, and the store reconnects")
  func lostClaim() async throws {
    try await withRelay { database, relay in
      let (outbox, events) = await outbox(url(database, "127.0.0.1:\(relay.port)"), on: database.loop)
      try await events.available()
      try await outbox.register()
      relay.fallSilent()
      let asked = database.loop.now
      let error = await #expect(throws: OutboxError.self) {
        try await outbox.claim(1, [LaneAllowance(lane: 1, limit: 1)], within: ClaimLimits())
      }
      #expect(error?.code == .answerLost)
      let time = database.loop.now - asked
      #expect(time < .seconds(36), "\(time.milliseconds) ms")
      try await events.unavailable()
      let next = await #expect(throws: OutboxError.self) { try await outbox.beat(mayReap: false) }
      #expect(next?.code == .unavailable)
      relay.speakAgain()
      // Each connection finds out by itself.
      while try await !isAlive(outbox) { try await events.available() }
      #expect(try await outbox.forget(1) == 0)
      await outbox.close()
    }
  }

  @Test("connections that die silently while idle are replaced within seconds")
  func idle() async throws {
    try await withRelay { database, relay in
      let (outbox, events) = await outbox(url(database, "127.0.0.1:\(relay.port)"), on: database.loop)
      try await events.available()
      let asked = database.loop.now
      relay.fallSilent()
      relay.speakAgain()
      try await events.unavailable()
      try await events.available()
      let time = database.loop.now - asked
      #expect(time < .seconds(40), "\(time.milliseconds) ms")
      await outbox.close()
    }
  }

  /// Waits for a number of the gateway's sessions, and then returns their pids.
  private func sessions(_ count: Int, _ database: TestDatabase, where condition: String = "true") async throws -> String
  {
    let sessions = "from pg_stat_activity where datname = current_database() and application_name ~ '^push-gateway '"
    try await database.wait(
      for: "select count(*) \(sessions) and \(condition)", toBe: "\(count)", within: .seconds(180))
    return try await database.value("select string_agg(pid::text, ',') \(sessions) and \(condition)")
  }

  @Test("a connection that replaces one with half a statement ends its session, and an idle session is not ended")
  func formerSessions() async throws {
    try await withRelay { database, relay in
      // The half statement lasts for as long as the outbox waits for its answer: long enough to be seen.
      let loop = EventLoop.slow("outbox")
      defer { loop.stop() }
      let (outbox, events) = await outbox(url(database, "127.0.0.1:\(relay.port)"), on: loop)
      try await events.available()
      try await outbox.register()
      let former = try await sessions(6, database)
      relay.withhold(last: 5, of: "push.beat(")
      let beat = Task { try await outbox.beat(mayReap: false) }
      let half = try await sessions(1, database, where: "state = 'active' and wait_event = 'ClientRead'")
      // The other five are idle when they lose their clients.
      relay.fallSilent()
      relay.speakAgain()
      await #expect(throws: OutboxError.self) { try await beat.value }
      // Each link has sent its first probe, so it is set up.
      _ = try await sessions(6, database, where: "pid not in (\(former)) and state = 'idle' and query = 'select 1'")
      _ = try await sessions(0, database, where: "pid = \(half)")
      _ = try await sessions(5, database, where: "pid in (\(former)) and state = 'idle'")
      try await eventually("a beat") { try await isAlive(outbox) }
      await outbox.close()
    }
  }

  @Test("a session with half a statement is ended even if the first connection after it fails while it is set up")
  func formerSessionOfTwo() async throws {
    try await withRelay { database, relay in
      // The half statement lasts for as long as the outbox waits for its answer: long enough to be seen.
      let loop = EventLoop.slow("outbox")
      defer { loop.stop() }
      let (outbox, events) = await outbox(url(database, "127.0.0.1:\(relay.port)"), on: loop)
      try await events.available()
      try await outbox.register()
      relay.withhold(last: 5, of: "push.beat(")
      relay.withhold(last: .max, of: "pg_terminate_backend")
      let beat = Task { try await outbox.beat(mayReap: false) }
      let half = try await sessions(1, database, where: "state = 'active' and wait_event = 'ClientRead'")
      let connections = relay.connectionCount
      await #expect(throws: OutboxError.self) { try await beat.value }
      _ = try await sessions(0, database, where: "pid = \(half)")
      #expect(relay.connectionCount == connections + 2)
      await outbox.close()
    }
  }

  @Test("the first of several hosts that answers is used, whatever the others do")
  func hosts() async throws {
    try await withRelay { database, silent in
      silent.fallSilent()
      let places = "127.0.0.1:1,127.0.0.1:\(silent.port),no-such-host.invalid,localhost:\(try port(database))"
      let asked = database.loop.now
      let connection = try await PostgresConnection.connect(
        to: url(database, places), applicationName: "tests", on: database.loop)
      #expect(try await connection.query(Self.one).int32(0, 0) == 1)
      let time = database.loop.now - asked
      #expect(time < .seconds(40), "\(time.milliseconds) ms")
      await connection.close()
    }
  }

  @Test("if no host answers, the error names each reason and no password")
  func noHost() async throws {
    let loop = EventLoop(name: "test")
    defer { loop.stop() }
    let error = await #expect(throws: PostgresError.self) {
      try await PostgresConnection.connect(
        to: "postgres://ops:geheim@127.0.0.1:1,no-such-host.invalid:2/push", applicationName: "tests", on: loop)
    }
    #expect(error?.description.contains("127.0.0.1") == true)
    #expect(error?.description.contains("no-such-host.invalid") == true)
    #expect(error?.description.contains("geheim") == false)
  }

  @Test("a read-only server is not used until it accepts writes")
  func readOnly() async throws {
    try await TestDatabase.with { database in
      try await setReadOnly(true, database)
      let (outbox, events) = await outbox(database.url, on: database.loop)
      try await events.unavailable(because: "read-only")
      try await setReadOnly(false, database)
      try await events.available()
      try await outbox.register()
      await outbox.close()
    }
  }

  @Test("a server that becomes read-only is left, and refused statements may be retried")
  func turnedReadOnly() async throws {
    try await TestDatabase.with { database in
      try await setReadOnly(true, database)
      let (outbox, events) = await outbox(database.url + "&target_session_attrs=any", on: database.loop)
      try await events.available()
      let error = await #expect(throws: OutboxError.self) { try await outbox.register() }
      #expect(error?.code == .transient)
      try await events.unavailable()
      try await setReadOnly(false, database)
      let asked = database.loop.now
      while try await isRefused(outbox) { try await events.available() }
      let time = database.loop.now - asked
      #expect(time < .seconds(35), "\(time.milliseconds) ms")
      await outbox.close()
    }
  }

  private func isAlive(_ outbox: PostgresOutbox) async throws -> Bool {
    try Task.checkCancellation()
    do throws(OutboxError) { return try await outbox.beat(mayReap: false) } catch { return false }
  }

  private func isRefused(_ outbox: PostgresOutbox) async throws -> Bool {
    try Task.checkCancellation()
    do throws(OutboxError) { try await outbox.register() } catch { return true }
    return false
  }

  private func setReadOnly(_ isReadOnly: Bool, _ database: TestDatabase) async throws {
    let name = database.name
    let admin = try await PostgresConnection.connect(
      to: database.url.replacing("/\(name)?", with: "/postgres?"), applicationName: "tests", on: database.loop)
    let value = isReadOnly ? "on" : "off"
    try await admin.script("alter database \(name) set default_transaction_read_only = \(value)")
    await admin.close()
  }

  @Test("what others have created in public takes the place of nothing in the program's sessions")
  func searchPath() async throws {
    try await TestDatabase.with { database in
      // For arguments of these types it would be preferred to the built-in function.
      try await database.execute(
        """
        create table public.used (application text);
        create function public.format(text, integer, numeric) returns text language plpgsql as $$
        begin
          insert into public.used values (current_setting('application_name'));
          return pg_catalog.format($1, $2, $3);
        end $$;
        """)
      let (outbox, events) = await outbox(database.url, on: database.loop)
      try await events.available()
      try await outbox.register()
      await outbox.close()
      #expect(try await database.value("select string_agg(application, ' ') from public.used") == "")
      let connection = try await PostgresConnection.connect(
        to: database.url, applicationName: "tests", on: database.loop)
      let path = PostgresStatement(name: "path", sql: "select current_setting('search_path')")
      #expect(try await connection.query(path).text(0, 0) == "pg_catalog")
      await connection.close()
    }
  }

  @Test("sessions do not wait for the disk, time out on a lock before deadlock detection, and notice a dead peer")
  func sessions() async throws {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      for statement in [
        OutboxStatements.setUpWork, OutboxStatements.setUpKeepalives, OutboxStatements.setUpConnectionCheck,
      ] {
        _ = try await connection.query(statement)
      }
      let settings = try await connection.query(
        PostgresStatement(
          name: "settings",
          sql: """
            select string_agg(setting || coalesce(unit, ''), ' ' order by name) from pg_settings where name in (
              'synchronous_commit', 'statement_timeout', 'lock_timeout', 'tcp_keepalives_idle', 'tcp_user_timeout',
              'client_connection_check_interval')
            """))
      #expect(settings.text(0, 0) == "1000ms 700ms 5000ms off 5s 10000ms")
      await connection.close()
    }
  }
}

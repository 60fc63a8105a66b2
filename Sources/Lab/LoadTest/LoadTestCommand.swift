// `push-gateway-lab loadtest`: enqueues many calls and checks the result of each delivery.

import ArgumentParser
import Console
import Foundation
import Queue
import Runtime
import Settings
import UnixSignals

struct LoadTestCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "loadtest",
    abstract: "Enqueue calls at a rate or in bulk, and measure and check their deliveries.",
    discussion: """
      With --rate, calls are enqueued when they are due, whether or not earlier calls are finished (Poisson, by --seed):
        push-gateway-lab loadtest --rate 200 --duration 60 --simulator-log pushes.log
      With --calls, they are enqueued in bulk by one COPY:
        push-gateway-lab loadtest --calls 100000 --devices 3 --simulator-log pushes.log --report load.html

      The gateway must send to simulators. To run everything on one machine:
        push-gateway-lab simulate --directory DIR --log pushes.log &
        DATABASE_URL=postgres://… push-gateway serve --config DIR/gateway.yaml &
        DATABASE_URL=postgres://… push-gateway-lab loadtest --rate 200 --duration 60 --simulator-log pushes.log
      The gateway's limits for Expo and FCM (rate_per_second) hold for a load test, too: raise them to measure anything else.

      TIMES. Each delivery has five times of the wall clock. They can be compared only if gateway, simulators, database and load \
      test use the same clock:
        scheduled   when the call was due; in bulk, when it was committed. Latencies from this time include the time that a call \
      waited to be enqueued (no coordinated omission)
        committed   when the database had answered the call's transaction, or the COPY. The gateway may be faster than that \
      answer: such a latency counts as 0
        request     when a simulator had read the whole request and accepted it (--simulator-log); else sent_at, when the gateway \
      sent the last request
        answered    answered_at: when the gateway had the provider's answer
        settled     finished_at: when Postgres wrote the delivery to its history

      THE VERDICT. Exit code 1 when one of the first three is not 0, or calls could not be enqueued:
        lost        committed, but neither settled nor owed; or settled as delivered, but not in the simulators' log
        duplicated  more accepted requests than history explains (an attempt that ended without an answer explains one), or \
      settled twice
        late        a request after the deadline
        failed      settled as void, expired or dead
        owed        not settled at the end of the wait
      Cancels and missed calls that follow the end of a ringing call are not counted.

      FAULTS. --faults dead=1%,outage=0.5%,slow=2% gives these shares of devices tokens that request a fault from the simulator: \
      \(LoadFaults.shared.map(\.name).joined(separator: ", ")), or a name of simulate --list-faults, for the providers that have it. \
      A fault that refuses a whole request refuses all pushes in it (Expo).

      Every call id and user id begins with loadtest- and the run's name. Nothing is deleted unless --cleanup is given. Ctrl-C \
      stops the calls, waits 5 seconds for unfinished deliveries, and reports; a second Ctrl-C reports at once.

      Needs a role that may enqueue and read, such as the owner of the schema push.
      """)

  @Option(help: ArgumentHelp("Calls a second on average.", valueName: "calls"))
  var rate: Double?

  @Option(help: ArgumentHelp("How long calls are enqueued, with --rate.", valueName: "seconds"))
  var duration = 60.0

  @Option(help: ArgumentHelp("Calls to enqueue at once by COPY, instead of --rate.", valueName: "count"))
  var calls: Int?

  @Option(
    help: ArgumentHelp("Number of devices of a call, 1 to 1000, each with its own user and token.", valueName: "count"))
  var devices = 3

  @Option(help: ArgumentHelp("Distribution of devices over providers, by weight.", valueName: "mix"))
  var mix = "apns=1,fcm=1,expo=1"

  @Option(
    name: .customLong("webpush-subscription"),
    help: ArgumentHelp(
      "The webpush-subscription.json of the simulators, for a mix with webpush: browsers have its keys.",
      valueName: "file"))
  var webPushSubscription: String?

  @Option(help: ArgumentHelp("Share of devices that get each fault.", valueName: "faults"))
  var faults: String?

  @Option(help: ArgumentHelp("The kind of the calls, as in push.outbox.", valueName: "kind"))
  var kind = LoadKind.incomingCall

  @Option(help: ArgumentHelp("The app of the calls, or several separated by commas, used in turn.", valueName: "app"))
  var app = "porteiro"

  @Option(help: ArgumentHelp("Ring window, 1 to 600; for notifications the time to live.", valueName: "seconds"))
  var ringSeconds = 60

  @Option(
    help: "Seed of arrivals, providers and faults: the same seed gives the same load. Random by default.")
  var seed: UInt64?

  @Option(help: ArgumentHelp("Number of connections for enqueueing, 1 to 64, with --rate.", valueName: "count"))
  var connections = 4

  @Option(
    help: ArgumentHelp(
      "How long to wait for unfinished deliveries after the last call. Default: the ring window and ten seconds.",
      valueName: "seconds"))
  var wait: Double?

  @Option(
    help: ArgumentHelp(
      "The log of push-gateway-lab simulate --log. New lines show which requests arrived, when, and how often.",
      valueName: "file"))
  var simulatorLog: String?

  @Flag(help: "Print one JSON object; latencies are microseconds.")
  var json = false

  @Option(help: ArgumentHelp("Write a report with charts to this file (HTML, nothing external).", valueName: "file"))
  var report: String?

  @Flag(help: "Delete the run's calls, deliveries and history from the database afterwards.")
  var cleanup = false

  @Flag(name: .customLong("i-own-this-server"), help: "Load a database that is not on this machine.")
  var ownsServer = false

  @Option(help: ArgumentHelp("The database; has precedence over DATABASE_URL and the configuration.", valueName: "url"))
  var database: String?

  @OptionGroup var configuration: ConfigurationOptions

  func validate() throws {
    guard (rate == nil) != (calls == nil) else { throw ValidationError("give either --rate or --calls") }
    if let rate {
      guard rate > 0, rate <= 100_000 else { throw ValidationError("--rate must be above 0, and 100000 at most") }
    }
    guard duration > 0, duration <= 86_400 else { throw ValidationError("--duration must be above 0, 86400 at most") }
    guard 1...10_000_000 ~= calls ?? 1 else { throw ValidationError("--calls must be from 1 to 10000000") }
    guard 1...1_000 ~= devices else { throw ValidationError("--devices must be from 1 to 1000") }
    guard 1...600 ~= ringSeconds else { throw ValidationError("--ring-seconds must be from 1 to 600") }
    guard 1...64 ~= connections else { throw ValidationError("--connections must be from 1 to 64") }
    guard 0...86_400 ~= wait ?? 0 else { throw ValidationError("--wait must be from 0 to 86400") }
    guard apps.allSatisfy(Self.isName) else {
      throw ValidationError("--app must be the name of an app, or several by commas")
    }
    _ = try shape(seed: 0)
  }

  func run() async throws {
    let url = try databaseURL()
    let seed = seed ?? UInt64.random(in: 0...UInt64(Int64.max))
    let arrivals = arrivals(seed: seed)
    let stop = LoadStop()
    let (run, offset) = try await start(url, try shape(seed: seed), arrivals, stop)
    let display = LoadProgressDisplay()
    try await Self.watchingSignals(stop) {
      try await Self.translatingErrors { try await run.run { display.show($0) } }
    }
    display.end()

    var result = LoadReport(
      await run.ledger, shape: run.database.shape, arrivals: arrivals, mix: mix, faults: faults ?? "",
      clockOffset: offset)
    result.failure = await run.failure.map { CommandFailure($0).description }
    try write(result)
    if cleanup { try await Self.translatingErrors { try await run.database.cleanUp(await run.outboxIDs) } }
    await run.database.close()
    if !result.verdict.isGood || result.failure != nil { throw ExitCode.failure }
  }

  // MARK: - Beginning

  private static func isName(_ app: String) -> Bool {
    !app.isEmpty && app.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "\\") }
  }

  private var apps: [String] { app.split(separator: ",", omittingEmptySubsequences: false).map(String.init) }

  private func shape(seed: UInt64) throws(ValidationError) -> LoadShape {
    var option = "--mix"
    do throws(LoadOptionError) {
      let mix = try LoadMix(mix)
      let subscription = try webPushSubscription.map { file throws(LoadOptionError) in try LoadSubscription(file: file)
      }
      if subscription == nil, mix.weights.contains(where: { $0.provider == .webpush }) {
        throw LoadOptionError("webpush needs --webpush-subscription, the webpush-subscription.json of the simulators")
      }
      option = "--faults"
      let faults = try self.faults.map { text throws(LoadOptionError) in try LoadFaults(text) } ?? .none
      return LoadShape(
        run: Self.runName(), apps: apps, kind: kind, ringSeconds: ringSeconds, devices: devices, mix: mix,
        faults: faults, subscription: subscription, seed: seed)
    } catch {
      throw ValidationError("\(option): \(error)")
    }
  }

  /// Unique to each run, whatever the seed.
  private static func runName() -> String {
    let digits = String(UInt32.random(in: 0...UInt32.max), radix: 16)
    return String(repeating: "0", count: LoadToken.runDigits - digits.count) + digits
  }

  private func arrivals(seed: UInt64) -> LoadArrivals {
    if let calls { return .bulk(calls: calls) }
    return .open(
      ArrivalSchedule(rate: rate ?? 1, duration: Nanoseconds(Int64(duration * 1e9)), seed: seed))
  }

  private func databaseURL() throws(CommandFailure) -> String {
    // libpq may take a piece of the password for the host, and the message below would show it.
    if let fault = database.flatMap(DatabaseURL.fault) { throw CommandFailure("--database: \(fault)") }
    let databases: [GatewayConfiguration.Database]
    do throws(ConfigurationError) {
      let source = configuration.source
      if let database {
        databases = [GatewayConfiguration.Database(url: database)]
      } else {
        databases = try GatewayConfiguration.loadDatabases(file: source.path, environment: source.environment)
      }
    } catch {
      throw CommandFailure(error)
    }
    guard databases.count == 1 else {
      throw CommandFailure("there are several databases: give the URL of the one to load with --database")
    }
    let url = databases[0].url
    let hosts: [String]
    do throws(PostgresError) { hosts = try PostgresHosts.named(in: url) } catch { throw CommandFailure(error) }
    if let host = hosts.first(where: { !PostgresHosts.isLoopback($0) }), !ownsServer {
      throw CommandFailure(
        "the database is at \(host), which is not this machine: a load test makes phones ring by the thousand and fills the "
          + "history. If that server is yours to load, and no real phone behind it, give --i-own-this-server")
    }
    return url
  }

  private func start(
    _ url: String, _ shape: LoadShape, _ arrivals: LoadArrivals, _ stop: LoadStop
  ) async throws -> (LoadRun, clockOffset: Int64) {
    try await Self.translatingErrors {
      let database = try await LoadDatabase(url: url, shape: shape, connections: rate == nil ? 0 : connections)
      if try await database.gateways() == 0 {
        StandardError.write("No gateway is running on this database: the calls wait until one is, or expire.")
      }
      StandardError.write("run \(shape.run): call ids begin with \(shape.prefix)")
      let wait = Nanoseconds(Int64((wait ?? Double(ringSeconds) + 10) * 1e9))
      let run = LoadRun(database: database, arrivals: arrivals, wait: wait, logFile: simulatorLog, stop: stop)
      return (run, try await database.clockOffset())
    }
  }

  private static func translatingErrors<Result>(_ body: () async throws -> Result) async throws -> Result {
    do { return try await body() } catch let error as PostgresError { throw CommandFailure(error) }
  }

  /// Runs `body`. Meanwhile SIGINT and SIGTERM are requests to stop.
  private static func watchingSignals(
    _ stop: LoadStop, _ body: @Sendable @escaping () async throws -> Void
  ) async throws {
    let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm)
    try await withThrowingTaskGroup(of: Bool.self) { group in
      group.addTask {
        for await _ in signals { stop.request(at: SystemClock().now()) }
        return false
      }
      group.addTask {
        try await body()
        return true
      }
      defer { group.cancelAll() }
      while let isFinished = try await group.next(), !isFinished {}
    }
  }

  // MARK: - End

  private func write(_ result: LoadReport) throws(CommandFailure) {
    if let report {
      do { try LoadPage(report: result).html.write(toFile: report, atomically: true, encoding: .utf8) } catch {
        throw CommandFailure("--report \(report): \(error.localizedDescription)")
      }
    }
    if json {
      StandardOutput.write(String(decoding: result.json, as: UTF8.self))
    } else {
      StandardOutput.write(result.lines(isColored: Terminal.isColored).joined(separator: "\n"))
    }
  }
}

extension LoadKind: ExpressibleByArgument {}

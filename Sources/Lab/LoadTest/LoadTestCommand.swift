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
    commandName: "loadtest", abstract: "Enqueue calls at a rate or in bulk, and measure and check their deliveries.",
    discussion: help)

  @Option(help: ArgumentHelp("Calls a second on average.", valueName: "calls"))
  var rate: Double?

  @Option(help: ArgumentHelp("How long calls are enqueued, with --rate.", valueName: "duration"))
  var duration = LoadDuration(.seconds(60))

  @Option(
    name: .customLong("stage"),
    help: ArgumentHelp(
      "A stage of the load, such as 2m@50: 50 calls a second for two minutes. Again for each further stage; a rate of 0 is a pause.",
      valueName: "duration@rate"))
  var stages: [ArrivalStage] = []

  @Option(
    help: ArgumentHelp(
      "A file of your own calls in the form of push-gateway enqueue, used in turn with --rate or --stage; or, without them, the number of "
        + "calls to enqueue at once by COPY.", valueName: "file|count"))
  var calls: String?

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

  @Option(
    name: .customLong("faults"),
    help: ArgumentHelp("Share of devices that get each fault. May be repeated.", valueName: "faults"))
  var allFaults: [String] = []
  private var faults: String? { allFaults.isEmpty ? nil : allFaults.joined(separator: ",") }

  @Option(help: ArgumentHelp("The kind of the calls, as in push.outbox.", valueName: "kind"))
  var kind = LoadKind.incomingCall

  @Option(
    help: ArgumentHelp(
      "The app of the calls, or several separated by commas, used in turn. Over HTTP it must be the app of the key.",
      valueName: "app"))
  var app = "porteiro"

  @Option(
    name: [.customLong("ring-window"), .customLong("ring-seconds")],
    help: ArgumentHelp("Ring window, 1s to 10m; for notifications the time to live.", valueName: "duration"))
  var ringWindow = LoadDuration(.seconds(60))

  @Option(
    help: "Seed of arrivals, providers and faults: the same seed gives the same load. Random by default.")
  var seed: UInt64?

  @Option(help: ArgumentHelp("How calls are enqueued: sql or http.", valueName: "way"))
  var over = LoadWay.sql

  @Option(help: ArgumentHelp("The HTTP API, such as http://127.0.0.1:8081, with --over http.", valueName: "url"))
  var url: String?

  @Option(
    name: .customLong("api-key-file"),
    help: ArgumentHelp(
      "A file with a key of the HTTP API that has the scope enqueue, with --over http.", valueName: "file"))
  var apiKeyFile: String?

  @Option(
    name: .customLong("ca-file"),
    help: ArgumentHelp(
      "Certificates trusted in addition to the system's, for --url and --simulator-log, such as the simulators' ca.pem.",
      valueName: "file"))
  var caFile: String?

  @Option(
    help: ArgumentHelp("Number of connections for enqueueing, 1 to 64, with --rate or --stage.", valueName: "count"))
  var connections = 4

  @Option(
    help: ArgumentHelp(
      "How long to wait for unfinished deliveries after the last call. Default: the ring window and ten seconds.",
      valueName: "duration"))
  var wait: LoadDuration?

  @Option(
    help: ArgumentHelp(
      "The log of push-gateway-lab simulate --log, a file or the URL of --log-port: https://HOST:PORT/log. New lines show which requests "
        + "arrived, when, and how often.", valueName: "file|url"))
  var simulatorLog: String?

  @Option(
    name: .customLong("require"),
    help: ArgumentHelp(
      "Conditions of the verdict GOOD, separated by commas: failed<0.1%,p99<500ms,delivered>99.9%. May be repeated.",
      valueName: "conditions"))
  var conditions: [String] = []
  private var require: String? { conditions.isEmpty ? nil : conditions.joined(separator: ",") }

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
    guard (rate != nil || !stages.isEmpty) != (bulkCount != nil), rate == nil || stages.isEmpty else {
      throw ValidationError(
        "give one of --rate, --stage, and --calls with a number; --calls with a file needs --rate or --stage")
    }
    if let rate {
      guard rate > 0, rate <= ArrivalStage.rateMax else {
        throw ValidationError("--rate must be above 0, and at most 100000")
      }
    }
    guard duration.nanoseconds > .zero, duration.nanoseconds <= ArrivalStage.durationMax else {
      throw ValidationError("--duration must be above 0s, and at most 24h")
    }
    guard ArrivalSchedule(stages: arrivalStages, seed: 0).expectedCount <= Double(Self.callsMax) else {
      throw ValidationError("a load may have at most \(Self.callsMax) calls")
    }
    guard 1...Self.callsMax ~= bulkCount ?? 1 else {
      throw ValidationError("--calls must be from 1 to \(Self.callsMax)")
    }
    guard 1...1_000 ~= devices else { throw ValidationError("--devices must be from 1 to 1000") }
    guard 1...600 ~= ringWindow.seconds, ringWindow.seconds == ringWindow.seconds.rounded() else {
      throw ValidationError("--ring-window must be whole seconds, from 1s to 10m")
    }
    guard 1...64 ~= connections else { throw ValidationError("--connections must be from 1 to 64") }
    guard wait?.nanoseconds ?? .zero <= ArrivalStage.durationMax else {
      throw ValidationError("--wait must be at most 24h")
    }
    guard apps.allSatisfy(Self.isName) else {
      throw ValidationError("--app must be the name of an app, or several names separated by commas")
    }
    if ownFile != nil, faults != nil {
      throw ValidationError("--faults is for generated calls: tokens of your own request a fault themselves")
    }
    try validateWay()
    if let ownFile, ownFile != "-", !FileManager.default.isReadableFile(atPath: ownFile) {
      throw ValidationError("--calls \(ownFile): there is no such file, or it cannot be read")
    }
    if let simulatorLog, !SimulatorLogReader.isURL(simulatorLog),
      !FileManager.default.isReadableFile(atPath: simulatorLog)
    {
      throw ValidationError(
        "--simulator-log \(simulatorLog): there is no such file, or it cannot be read. simulate --log creates it when it starts; without "
          + "this option, the verdict does not say whether pushes arrived")
    }
    try validateFiles()
    _ = try requirements()
    _ = try shape(seed: 0)
  }

  private func validateFiles() throws(ValidationError) {
    if let caFile {
      do throws(TLSError) { _ = try TLSContext.client(caFile: caFile) } catch {
        throw ValidationError("--ca-file \(error)")
      }
    }
    if let report {
      let folder = report.lastIndex(of: "/").map { String(report[...$0]) } ?? "."
      guard FileManager.default.isWritableFile(atPath: folder) else {
        throw ValidationError("--report \(report): there is no directory \(folder), or it cannot be written")
      }
    }
  }

  private func validateWay() throws(ValidationError) {
    switch over {
    case .sql:
      guard url == nil, apiKeyFile == nil else { throw ValidationError("--url and --api-key-file are for --over http") }
    case .http:
      guard let url, apiKeyFile != nil else { throw ValidationError("--over http needs --url and --api-key-file") }
      guard bulkCount == nil else { throw ValidationError("--over http needs --rate or --stage: COPY is SQL") }
      guard apps.count == 1 else { throw ValidationError("--over http needs one --app: the app of the key") }
      guard SimulatorLogReader.isURL(url), URLComponents(string: url)?.host != nil else {
        throw ValidationError("--url must be https://HOST:PORT, or http:// on this machine")
      }
    }
  }

  func run() async throws {
    // Two loops, so that reading the log never delays a call.
    let timeout = Nanoseconds.seconds(30)
    let log = LoadHTTP(caFile: caFile, connections: 1, timeout: timeout)
    let api = LoadHTTP(caFile: caFile, connections: connections, timeout: timeout)
    let result: Result<LoadVerdict.Result, any Error>
    do { result = .success(try await load(log, api)) } catch { result = .failure(error) }
    await log.close()
    await api.close()
    let verdict = try result.get()
    if verdict != .good { throw ExitCode(verdict.exitCode) }
  }

  private func load(_ log: LoadHTTP, _ api: LoadHTTP) async throws -> LoadVerdict.Result {
    let url = try databaseURL()
    let seed = seed ?? UInt64.random(in: 0..<(1 << 53))
    var shape = try shape(seed: seed)
    if let ownFile {
      do throws(CommandFailure) { shape.lines = try LoadCallFile.read(ownFile) } catch { throw ValidationError(error) }
    }
    let arrivals = arrivals(seed: seed)
    let stop = LoadStop()
    var reader: SimulatorLogReader?
    if let simulatorLog {
      do throws(CommandFailure) {
        reader = try await SimulatorLogReader(simulatorLog, filter: .init(shape), http: log)
      } catch {
        throw ValidationError(error)
      }
    }
    let sender = try key().map { LoadAPI(url: self.url ?? "", key: $0, http: api) }
    let (run, offset) = try await start(url, shape, arrivals, sender, reader, stop)
    let display = LoadProgressDisplay()
    try await Self.watchingSignals(stop) {
      try await Self.translatingErrors { try await run.run { display.show($0) } }
    }
    display.end()

    let report = LoadReport(
      await run.ledger, shape: shape, arrivals: arrivals, mix: mix, faults: faults ?? "", clockOffset: offset,
      requirements: try requirements(), cut: await run.cut)
    try write(report)
    if cleanup {
      let ids = await run.outboxIDs
      do throws(PostgresError) {
        try await run.database.cleanUp(ids) { StandardError.write("\($0) of \(ids.count) calls deleted") }
      } catch {
        StandardError.write("Warning: --cleanup did not delete all calls: \(CommandFailure(error))")
      }
    }
    await run.database.close()
    return report.verdict.result
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
        run: Self.runName(), apps: apps, kind: kind, ringSeconds: Int(ringWindow.seconds), devices: devices, mix: mix,
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

  /// Maximum number of calls of a load.
  private static let callsMax = 10_000_000

  /// The number of calls of a COPY; nil if --calls is a file or not given.
  private var bulkCount: Int? { calls.flatMap { Int($0) } }
  /// The file of the user's own calls.
  private var ownFile: String? { bulkCount == nil ? calls : nil }
  private var arrivalStages: [ArrivalStage] {
    stages.isEmpty ? [ArrivalStage(rate: rate ?? 0, duration: duration.nanoseconds)] : stages
  }

  private func arrivals(seed: UInt64) -> LoadArrivals {
    if let bulkCount { return .bulk(calls: bulkCount) }
    return .open(ArrivalSchedule(stages: arrivalStages, seed: seed))
  }

  private func requirements() throws(ValidationError) -> [LoadRequirement] {
    do throws(LoadOptionError) {
      return try require.map { text throws(LoadOptionError) in try LoadRequirement.list(text) } ?? []
    } catch {
      throw ValidationError("--require: \(error)")
    }
  }

  /// - Throws: `ValidationError`, or `ConfigurationError` for a URL of the configuration or DATABASE_URL.
  private func databaseURL() throws -> String {
    // libpq may take a piece of the password for the host, and the message below would show it.
    if let fault = database.flatMap(DatabaseURL.fault) { throw ValidationError("--database: \(fault)") }
    let source = configuration.source
    let databases =
      if let database {
        [GatewayConfiguration.Database(url: database)]
      } else {
        try GatewayConfiguration.loadDatabases(
          file: source.path, mustBeReadable: configuration.config != nil, environment: source.environment)
      }
    guard databases.count == 1 else {
      throw ValidationError("there are several databases: give the URL of the one to load with --database")
    }
    let url = databases[0].url
    let hosts: [String]
    do throws(PostgresError) { hosts = try PostgresHosts.named(in: url) } catch {
      throw ValidationError(CommandFailure(error))
    }
    let api = self.url.flatMap { URLComponents(string: $0)?.host }
    for (what, host) in hosts.map({ ("database", $0) }) + (api.map { [("API", $0)] } ?? [])
    where !PostgresHosts.isLoopback(host) && !ownsServer {
      throw ValidationError(
        "the \(what) is at \(host), which is not this machine: a load test makes phones ring by the thousand and fills the "
          + "history. If that server is yours to load, and no real phone behind it, give --i-own-this-server")
    }
    return url
  }

  private func key() throws(ValidationError) -> String? {
    guard let apiKeyFile else { return nil }
    let content: [UInt8]
    do throws(SecretFile.Failure) { content = try SecretFile.read(apiKeyFile) } catch {
      throw ValidationError("--api-key-file \(error)")
    }
    let key = String(decoding: content, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
    guard !key.isEmpty, key.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
      throw ValidationError("--api-key-file \(apiKeyFile): this is no key of the HTTP API")
    }
    return key
  }

  /// - Parameter api: enqueues the calls; nil: SQL does.
  private func start(
    _ url: String, _ shape: LoadShape, _ arrivals: LoadArrivals, _ api: LoadAPI?, _ log: SimulatorLogReader?,
    _ stop: LoadStop
  ) async throws -> (LoadRun, clockOffset: Int64) {
    try await Self.translatingErrors {
      var database = try await LoadDatabase(
        url: url, shape: shape, connections: arrivals.isBulk || api != nil ? 0 : connections)
      try await checkApp(of: api, database)
      if let ownFile {
        StandardError.write("checking \(shape.lines.count) calls")
        let faults = try await database.faults { StandardError.write("\($0) of \(shape.lines.count) calls checked") }
        if let failure = LoadCallFile.failure(ownFile, faults) { throw ValidationError(failure) }
      }
      if try await database.gateways() == 0 {
        StandardError.write("No gateway is running on this database: the calls wait until one is, or expire.")
      }
      if let warning = LoadLane.warning(try await database.lanes()) { StandardError.write(warning) }
      if !shape.hasOwnCalls {
        let missing = try await database.missingProviders()
        for (app, providers) in missing.sorted(by: { $0.key < $1.key }) {
          StandardError.write(
            "Warning: the app \(app) has no \(providers.map(\.name).sorted().joined(separator: ", ")): such devices count as failed"
          )
        }
        database.shape.missingProviders = missing
      }
      StandardError.write("run \(shape.run): call ids begin with \(shape.prefix)")
      let wait = wait?.nanoseconds ?? .seconds(Int64(shape.ringSecondsMax) + 10)
      let run = LoadRun(
        database: database, sender: (api as (any LoadSender)?) ?? database, arrivals: arrivals, wait: wait, log: log,
        stop: stop)
      return (run, try await database.clockOffset())
    }
  }

  /// Over HTTP, the key determines the app. Another app in the options or in the file would be counted, checked and cleaned up in vain.
  private func checkApp(of api: LoadAPI?, _ database: LoadDatabase) async throws {
    guard let key = api?.keyID, let app = try await database.app(ofKey: key),
      let other = database.shape.usedApps.first(where: { $0 != app })
    else { return }
    throw ValidationError(
      "\(ownFile.map { "--app, --calls \($0)" } ?? "--app"): the calls are of the app \(other), but the key of --api-key-file is of \(app)"
    )
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
    if json {
      StandardOutput.write(String(decoding: result.json, as: UTF8.self))
    } else {
      StandardOutput.write(result.lines(isColored: Terminal.isColored).joined(separator: "\n"))
    }
    if let report {
      do { try LoadPage(report: result).html.write(toFile: report, atomically: true, encoding: .utf8) } catch {
        throw CommandFailure("--report \(report): \(error.localizedDescription)")
      }
    }
  }
}

extension ValidationError {
  /// What the user gave is wrong: exit code 64.
  fileprivate init(_ failure: CommandFailure) { self.init(failure.description) }
}

extension LoadKind: ExpressibleByArgument {}

/// A way in.
enum LoadWay: String, CaseIterable, ExpressibleByArgument {
  case sql, http
}

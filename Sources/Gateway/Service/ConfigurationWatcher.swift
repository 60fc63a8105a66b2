// Watches the configuration and the files that it names while the gateway runs, and takes over what has changed.
//
// Apps with all their settings, credentials and `log.level` are taken over. Any other change needs a restart.

import Console
import HTTPSurface
import Logging
import Runtime
import Settings

/// Watches the files of the configuration. An actor on the gateway's event loop.
actor ConfigurationWatcher {
  /// The interval at which the files are checked.
  static let interval = Nanoseconds.seconds(2)

  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let source: ConfigurationFile
  private let threshold: LogThreshold?
  private let logger: Logger
  private let accounts: LaneAccounts
  private let apiApps: APIApps
  private let serve: @Sendable ([ServedApp]) async -> Void
  private let didReload: @Sendable ([ServedApp]) async -> Void
  private var configuration: GatewayConfiguration
  private var stamps: [String: FileStamp] = [:]
  /// Why the files could not be read last time; nil if they could.
  private var problems: String?
  /// The reload under way.
  private var reloading: Task<Void, Never>?
  /// Whether to read everything again.
  private var mustReload = false
  private var timer: EventLoop.Timer?
  private var isStopped = false

  /// - Parameters:
  ///   - didReload: called with the apps after each reload.
  ///   - serve: called with the apps to serve from now on, if more than credentials has changed.
  init(
    source: ConfigurationFile, configuration: GatewayConfiguration, accounts: LaneAccounts,
    threshold: LogThreshold? = nil, apiApps: APIApps = APIApps(), logger: Logger,
    didReload: @escaping @Sendable ([ServedApp]) async -> Void = { _ in },
    serve: @escaping @Sendable ([ServedApp]) async -> Void
  ) {
    self.didReload = didReload
    self.source = source
    self.configuration = configuration
    self.accounts = accounts
    self.loop = accounts.loop
    self.threshold = threshold
    self.apiApps = apiApps
    self.logger = logger
    self.serve = serve
  }

  func start() {
    stamps = currentStamps
    plan()
  }

  func stop() {
    isStopped = true
    timer?.cancel()
  }

  private func plan() {
    guard !isStopped else { return }
    timer = loop.schedule(at: loop.now + Self.interval) { [weak self] in
      guard let self else { return }
      assumeIsolated { watcher in
        _ = Task {
          await watcher.look()
          watcher.plan()
        }
      }
    }
  }

  /// Reads everything again if a file has changed, or if there was a problem.
  func look() async {
    // A configuration with a problem may name files that are not watched yet, so it is read until it has none.
    guard currentStamps != stamps || problems != nil else { return }
    await reload()
  }

  /// Reads everything again, and applies what has changed. If that is under way already, it is done once more afterwards.
  func reload() async {
    mustReload = true
    if let reloading { return await reloading.value }
    let task = Task {
      while mustReload, !isStopped {
        mustReload = false
        await apply()
      }
      reloading = nil
    }
    reloading = task
    await task.value
  }

  private func apply() async {
    let former = configuration
    // Before reading: what changes while it is read is then noticed by the next look.
    let seen = currentStamps
    let result = await Self.load(source)
    guard !isStopped else { return }
    switch result {
    case .success(let loaded):
      configuration = loaded
      problems = nil
    case .failure(let error):
      stamps = seen
      if problems != "\(error)" {
        logger.error(
          "The configuration was not read again: the current one stays in use", metadata: ["problems": "\(error)"])
      }
      problems = "\(error)"
      return
    }
    stamps = currentStamps.merging(seen) { $1 }.filter { [files = Set(files)] in files.contains($0.key) }
    adjustThreshold()
    apiApps.update(to: configuration.apps)
    if !configuration.isTakenOver(from: former) {
      logger.warning(
        "Settings have changed that take effect only after a restart: only apps, credentials and log.level do at once")
    }
    if await accounts.update(to: configuration.apps), !isStopped { await serve(accounts.apps) }
    if !isStopped { await didReload(accounts.apps) }
  }

  /// Reads the configuration, not on the event loop: a large one takes longer than a call may wait.
  @concurrent private static func load(
    _ source: ConfigurationFile
  ) async -> Result<GatewayConfiguration, ConfigurationError> {
    do throws(ConfigurationError) { return .success(try source.load()) } catch { return .failure(error) }
  }

  private func adjustThreshold() {
    guard let threshold, threshold.level != configuration.logLevel else { return }
    let former = threshold.level
    // Logged while the lower of the two levels applies, so that the line is not suppressed.
    threshold.level = min(former, configuration.logLevel)
    logger.notice("The log level has changed", metadata: ["from": "\(former)", "to": "\(configuration.logLevel)"])
    threshold.level = configuration.logLevel
  }

  private var currentStamps: [String: FileStamp] {
    Dictionary(files.compactMap { file in FileStamp(path: file).map { (file, $0) } }) { first, _ in first }
  }

  /// The files of the current configuration.
  private var files: [String] {
    var files = configuration.apps.flatMap {
      $0.credentialsFiles + [$0.templatesFile, $0.webhook?.secretFile].compactMap(\.self)
    }
    files += accounts.assumeIsolated { $0.proxyCredentialsFiles }
    if let path = source.path { files.append(path) }
    return files
  }
}

extension GatewayConfiguration {
  /// Whether everything that differs from the former configuration takes effect without a restart.
  fileprivate func isTakenOver(from former: GatewayConfiguration) -> Bool {
    var same = former
    (same.apps, same.proxy, same.logLevel) = (apps, proxy, logLevel)
    return same == self
  }
}

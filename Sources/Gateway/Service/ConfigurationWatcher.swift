// Watches the configuration and the files that it names while the gateway runs, and takes over what has changed.
//
// Apps with all their settings, credentials and `log.level` are taken over. Any other change needs a restart.

import Console
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
  private let serve: @Sendable ([ServedApp]) async -> Void
  private var configuration: GatewayConfiguration
  private var stamps: [String: FileStamp] = [:]
  private var timer: EventLoop.Timer?
  private var isStopped = false

  /// - Parameter serve: called with the apps to serve from now on, if more than credentials has changed.
  init(
    source: ConfigurationFile, configuration: GatewayConfiguration, accounts: LaneAccounts,
    threshold: LogThreshold? = nil, logger: Logger, serve: @escaping @Sendable ([ServedApp]) async -> Void
  ) {
    self.source = source
    self.configuration = configuration
    self.accounts = accounts
    self.loop = accounts.loop
    self.threshold = threshold
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

  private func look() async {
    let now = currentStamps
    guard now != stamps else { return }
    stamps = now
    await reload()
  }

  /// Reads everything again, and applies what has changed.
  func reload() async {
    guard !isStopped else { return }
    let former = configuration
    do throws(ConfigurationError) {
      configuration = try source.load()
    } catch {
      logger.error(
        "The configuration was not read again: the current one stays in use", metadata: ["problems": "\(error)"])
      return
    }
    stamps = currentStamps
    adjustThreshold()
    if !configuration.isTakenOver(from: former) {
      logger.warning(
        "Settings have changed that take effect only after a restart: only apps, credentials and log.level do at once")
    }
    if await accounts.update(to: configuration.apps) { await serve(accounts.apps) }
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
    var files = configuration.apps.flatMap { $0.credentialsFiles + [$0.templatesFile].compactMap(\.self) }
    files += accounts.assumeIsolated { $0.proxyCredentialsFiles }
    if let path = source.path { files.append(path) }
    return Dictionary(files.compactMap { file in FileStamp(path: file).map { (file, $0) } }) { first, _ in first }
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

// Watches the files of keys and accounts while the gateway runs, and gives lanes their new credentials.
//
// A new APNs key has a new id, which is in the configuration, so the configuration is read again too. Only credentials
// and `log.level` are taken from it; any other change needs a restart. That includes another proxy and another
// credentials file for it, but not a change of that file's content.

import Console
import Logging
import Providers
import Queue
import Runtime
import Settings

/// Watches the credentials of all lanes. An actor on the gateway's event loop.
actor CredentialWatcher {
  /// A lane, with the credentials in use.
  struct Lane {
    var app: String
    var kind: ProviderKind
    var provider: LaneProvider
  }

  /// The interval at which the files are checked.
  static let interval = Nanoseconds.seconds(2)

  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let source: ConfigurationFile
  private let threshold: LogThreshold?
  private let logger: Logger
  private var factory: ProviderFactory
  private var configuration: GatewayConfiguration
  private var lanes: [Lane]
  private var stamps: [String: FileStamp]
  private var timer: EventLoop.Timer?
  private var isStopped = false

  init(
    source: ConfigurationFile, configuration: GatewayConfiguration, factory: ProviderFactory, lanes: [Lane],
    threshold: LogThreshold? = nil, logger: Logger
  ) {
    self.source = source
    self.configuration = configuration
    self.factory = factory
    self.loop = factory.loop
    self.lanes = lanes
    self.threshold = threshold
    self.logger = logger
    stamps = Self.stamps(of: configuration, source, factory)
  }

  func start() { plan() }

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
    let now = Self.stamps(of: configuration, source, factory)
    guard now != stamps else { return }
    stamps = now
    await reload()
  }

  /// Reads everything again, and applies what has changed.
  func reload() async {
    do throws(ConfigurationError) {
      configuration = try source.load()
    } catch {
      logger.error(
        "The configuration was not read again: the current one stays in use", metadata: ["problems": "\(error)"])
      return
    }
    stamps = Self.stamps(of: configuration, source, factory)
    adjustThreshold()
    await renewProxyCredentials()
    for index in lanes.indices { await renew(index) }
  }

  private func adjustThreshold() {
    guard let threshold, threshold.level != configuration.logLevel else { return }
    let former = threshold.level
    // Logged while the lower of the two levels applies, so that the line is not suppressed.
    threshold.level = min(former, configuration.logLevel)
    logger.notice("The log level has changed", metadata: ["from": "\(former)", "to": "\(configuration.logLevel)"])
    threshold.level = configuration.logLevel
  }

  /// Called first, because the lanes' new credentials may need connections. Lanes that wait to connect try at once.
  private func renewProxyCredentials() async {
    for (proxy, result) in factory.renewProxyCredentials() {
      switch result {
      case .success:
        logger.notice("A proxy's credentials have changed: new connections use them", metadata: ["proxy": "\(proxy)"])
        for lane in lanes where lane.provider.proxy === proxy { await lane.provider.provider.retryConnections() }
      case .failure(let failure):
        logger.error(
          "New credentials cannot be used: the current ones stay in use",
          metadata: ["proxy": "\(proxy)", "reason": "\(failure)"])
      }
    }
  }

  private func renew(_ index: Int) async {
    let lane = lanes[index]
    let metadata: Logger.Metadata = ["app": "\(lane.app)", "provider": "\(lane.kind.rawValue)"]
    guard let app = configuration.apps.first(where: { $0.name == lane.app }), app.providers.contains(lane.kind) else {
      logger.warning("A lane is no longer in the configuration; it is served until the restart", metadata: metadata)
      return
    }
    do {
      guard let rotation = try factory.rotation(of: lane.provider, lane.kind, to: app) else { return }
      lanes[index].provider.identity = rotation.identity
      await rotation.apply()
      logger.notice("A lane's credentials have changed", metadata: metadata)
    } catch {
      logger.error(
        "New credentials cannot be used: the current ones stay in use",
        metadata: metadata.merging(["reason": "\(error)"]) { $1 })
    }
  }

  private static func stamps(
    of configuration: GatewayConfiguration, _ source: ConfigurationFile, _ factory: ProviderFactory
  ) -> [String: FileStamp] {
    var files = configuration.apps.flatMap {
      [$0.apns?.keyFile, $0.fcm?.serviceAccountFile, $0.expo?.accessTokenFile].compactMap(\.self)
    }
    files += factory.proxyCredentialsFiles
    if let path = source.path { files.append(path) }
    return Dictionary(files.compactMap { file in FileStamp(path: file).map { (file, $0) } }) { first, _ in first }
  }
}

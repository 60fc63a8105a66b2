// The providers of all apps, which the dispatchers of all databases share, and what changes with the configuration.
//
// A change of an app's settings makes new providers only where the old ones cannot be used: another topic, project, URL, number of
// connections or proxy. Other settings and credentials leave the connections as they are.

import Dispatching
import Logging
import Providers
import Queue
import Runtime
import Settings

/// An app's account at one provider, or at one of the services behind it.
struct LaneAccount: Sendable {
  let kind: ProviderKind
  var service: WebPushService?
  var lane: LaneProvider
  let shared: SharedProvider
  let board: LaneBoard
}

/// An app and its accounts, in the order of `App.providers`.
struct ServedApp: Sendable {
  var app: GatewayConfiguration.App
  var accounts: [LaneAccount]

  var lanes: [LaneName] { accounts.map { LaneName(app: app.name, provider: $0.kind, service: $0.service) } }
}

/// Keeps the accounts. An actor on the gateway's event loop.
actor LaneAccounts {
  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private var factory: ProviderFactory
  private let logger: Logger
  private(set) var apps: [ServedApp] = []

  init(_ factory: ProviderFactory, logger: Logger) {
    self.factory = factory
    loop = factory.loop
    self.logger = logger
  }

  /// The files with the credentials of proxies.
  var proxyCredentialsFiles: [String] { factory.proxyCredentialsFiles }

  /// Makes the accounts of all apps.
  ///
  /// - Throws: what is wrong with a key, account or certificate file, with its name.
  func make(for configured: [GatewayConfiguration.App]) throws -> [ServedApp] {
    apps = try configured.map { try serve($0, after: nil) }
    return apps
  }

  /// Takes over another configuration. An app whose new settings cannot be used keeps its current ones, and the reason is logged.
  ///
  /// - Returns: whether other apps, or apps with other settings than credentials, are served from now on.
  func update(to configured: [GatewayConfiguration.App]) async -> Bool {
    // First, because new credentials may need connections. Lanes that wait to connect try at once.
    await renewProxyCredentials()
    var next: [ServedApp] = []
    var isChanged = false
    for app in configured {
      // Reading the keys of many apps takes longer than a call may wait: calls have their turn between two apps.
      await Task.yield()
      let former = apps.first { $0.app.name == app.name }
      do {
        var served = try serve(app, after: former)
        if let former {
          if !served.isServed(like: former) {
            isChanged = true
            logger.notice("An app's settings have changed", metadata: ["app": "\(app.name)"])
          }
        } else {
          isChanged = true
          logger.notice("An app is added", metadata: ["app": "\(app.name)"])
        }
        await rotateCredentials(of: &served, after: former)
        next.append(served)
      } catch {
        let metadata: Logger.Metadata = ["app": "\(app.name)", "reason": "\(error)"]
        if former == nil {
          logger.error("A new app cannot be served", metadata: metadata)
        } else {
          logger.error("An app's new settings cannot be used: the current ones stay in use", metadata: metadata)
        }
        if let former { next.append(former) }
      }
    }
    for former in apps where !configured.contains(where: { $0.name == former.app.name }) {
      isChanged = true
      logger.notice("An app is removed: its deliveries are no longer sent", metadata: ["app": "\(former.app.name)"])
    }
    apps = next
    return isChanged
  }

  /// The app with its accounts. Those of `former` are used again where their connections fit.
  private func serve(_ app: GatewayConfiguration.App, after former: ServedApp?) throws -> ServedApp {
    ServedApp(
      app: app,
      accounts: try app.lanes.map { lane in
        let kind = lane.provider
        if let former,
          let account = former.accounts.first(where: { $0.kind == kind && $0.service == lane.service }),
          former.app.connectionSettings(kind) == app.connectionSettings(kind), !isOtherProject(account, app)
        {
          account.board.describe(by: RefusalSentence.of(lane, in: app))
          return account
        }
        let made = try factory.make(kind, lane.service, for: app)
        return LaneAccount(
          kind: kind, service: lane.service, lane: made, shared: SharedProvider(made.provider),
          board: LaneBoard(on: loop, sentence: RefusalSentence.of(lane, in: app)))
      })
  }

  /// FCM's project is part of the URL of every push.
  private func isOtherProject(_ account: LaneAccount, _ app: GatewayConfiguration.App) -> Bool {
    guard account.kind == .fcm, let project = try? factory.project(of: app) else { return false }
    return project != account.lane.project
  }

  /// Makes accounts that are used again use the current credentials of their app.
  private func rotateCredentials(of served: inout ServedApp, after former: ServedApp?) async {
    guard let former else { return }
    for index in served.accounts.indices {
      let account = served.accounts[index]
      guard former.accounts.contains(where: { $0.shared === account.shared }) else { continue }
      let metadata: Logger.Metadata = ["app": "\(served.app.name)", "provider": "\(account.kind.rawValue)"]
      do {
        guard let rotation = try factory.rotation(of: account.lane, account.kind, to: served.app) else { continue }
        served.accounts[index].lane.identity = rotation.identity
        await rotation.apply()
        account.board.credentialsChanged()
        logger.notice("A lane's credentials have changed", metadata: metadata)
      } catch {
        logger.error(
          "New credentials cannot be used: the current ones stay in use",
          metadata: metadata.merging(["reason": "\(error)"]) { $1 })
      }
    }
  }

  private func renewProxyCredentials() async {
    for (proxy, result) in factory.renewProxyCredentials() {
      switch result {
      case .success:
        logger.notice("A proxy's credentials have changed: new connections use them", metadata: ["proxy": "\(proxy)"])
        for account in apps.flatMap(\.accounts) where account.lane.proxy === proxy {
          await account.lane.provider.retryConnections()
        }
      case .failure(let failure):
        logger.error(
          "New credentials cannot be used: the current ones stay in use",
          metadata: ["proxy": "\(proxy)", "reason": "\(failure)"])
      }
    }
  }
}

extension ServedApp {
  /// Whether a dispatcher that serves `other` serves this app as well: only credentials differ.
  fileprivate func isServed(like other: ServedApp) -> Bool {
    app.withoutCredentials == other.app.withoutCredentials
      && accounts.elementsEqual(other.accounts) { $0.shared === $1.shared }
  }
}

// The webhooks of all apps: one sender for each database, on a loop of their own.

import Logging
import Runtime
import Settings
import Webhooks

/// Keeps the senders and the endpoints that they use. An actor on the loop of webhooks.
actor WebhookService {
  /// How long a stop waits for requests under way. What is not acknowledged by then is sent again by another gateway.
  private static let stopTime = Nanoseconds.seconds(5)

  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let senders: [WebhookSender]
  private let privacy: SecretFile.Privacy
  private let logger: Logger
  private var endpoints: [WebhookEndpoint] = []
  private var apps: [String]?
  /// One proxy for all apps with the same proxy and credentials.
  private var proxies: [GatewayConfiguration.Proxy: HTTPProxy] = [:]

  init(_ configuration: GatewayConfiguration, counters: WebhookCounters, logger: Logger) {
    let loop = EventLoop(name: "webhooks")
    self.loop = loop
    privacy = configuration.secretPrivacy
    self.logger = logger
    senders = configuration.databases.map { database in
      var logger = logger
      if let name = database.name { logger[metadataKey: "database"] = "\(name)" }
      return WebhookSender(
        url: database.url, caFile: configuration.caFile, counters: counters, loop: loop, logger: logger)
    }
  }

  /// Takes over the webhooks of these apps. If a secret cannot be read, the app keeps the webhook that it has.
  func use(_ configured: [GatewayConfiguration.App]) {
    var next: [WebhookEndpoint] = []
    for app in configured {
      guard let webhook = app.webhook else { continue }
      do {
        next.append(
          WebhookEndpoint(
            app: app.name, url: webhook.url, host: webhook.host, events: webhook.events,
            timeout: .milliseconds(Int64(webhook.timeoutMilliseconds)),
            secrets: try WebhookSecrets.load(file: webhook.secretFile, privacy: privacy),
            proxy: try proxy(of: app)))
      } catch {
        logger.error(
          "New credentials cannot be used: the current ones stay in use",
          metadata: ["app": "\(app.name)", "reason": "\(error)"])
        if let former = endpoints.first(where: { $0.app == app.name }) { next.append(former) }
      }
    }
    let names = configured.map(\.name)
    guard next != endpoints || names != apps else { return }
    if apps != nil {
      for endpoint in next where !endpoints.contains(endpoint) {
        logger.notice("An app's webhook has changed", metadata: ["app": "\(endpoint.app)", "host": "\(endpoint.host)"])
      }
      for former in endpoints where !next.contains(where: { $0.app == former.app }) {
        logger.notice("An app's webhook is removed", metadata: ["app": "\(former.app)", "host": "\(former.host)"])
      }
    }
    (endpoints, apps) = (next, names)
    for sender in senders { sender.assumeIsolated { $0.use(next, apps: names) } }
  }

  /// The proxy of an app, with its current credentials; nil for none.
  private func proxy(of app: GatewayConfiguration.App) throws(ProxyCredentials.Failure) -> HTTPProxy? {
    guard let configuration = app.proxy else { return nil }
    let credentials = try configuration.credentialsFile.map { file throws(ProxyCredentials.Failure) in
      try ProxyCredentials.load(file: file, privacy: privacy)
    }
    if let proxy = proxies[configuration] {
      _ = proxy.use(credentials)
      return proxy
    }
    let proxy = HTTPProxy(host: configuration.host, port: configuration.port, credentials: credentials)
    proxies[configuration] = proxy
    return proxy
  }

  /// Ends everything, no later than `deadline` or after a few seconds. The loop goes on.
  func stop(by deadline: Instant) async {
    let limit = min(deadline, loop.now + Self.stopTime)
    await withTaskGroup { group in
      for sender in senders { group.addTask { await sender.stop(by: limit) } }
    }
  }
}

// From the configuration of an app to its providers.

import Logging
import Providers
import Runtime

/// Makes providers; one signing key gives one token source, whoever uses it.
struct ProviderFactory {
  let caFile: String?
  let loop: EventLoop
  private let logger: Logger
  private var tokenSources: [String: APNsTokenSource] = [:]
  private var accessTokenSources: [String: FCMTokenSource] = [:]

  init(caFile: String?, loop: EventLoop, logger: Logger) {
    self.caFile = caFile
    self.loop = loop
    self.logger = logger
  }

  /// A provider, the most deliveries that it may hold (twice what can be on the wire, so that the next are at hand), and the
  /// most it may send a second.
  ///
  /// - Throws: what is wrong with a key, an account or a certificate file, naming the file.
  mutating func make(_ kind: ProviderKind, for app: GatewayConfiguration.App) throws -> (
    any PushProvider, window: Int, perSecond: Int?
  ) {
    var logger = logger
    logger[metadataKey: "app"] = "\(app.name)"
    logger[metadataKey: "provider"] = "\(kind.rawValue)"
    switch kind {
    case .apns: return try apns(app, logger)
    case .fcm: return try fcm(app, logger)
    case .expo: return try expo(app)
    }
  }

  private mutating func apns(
    _ app: GatewayConfiguration.App, _ logger: Logger
  ) throws -> (any PushProvider, window: Int, perSecond: Int?) {
    guard let settings = app.apns else { preconditionFailure("\(app.name) has no apns section") }
    let tls = try TLSContext.client(caFile: caFile)
    let identity = "\(settings.teamID)/\(settings.keyID)"
    let tokens: APNsTokenSource
    if let known = tokenSources[identity] {
      tokens = known
    } else {
      tokens = APNsTokenSource(
        try APNsCredentials(teamID: settings.teamID, keyID: settings.keyID, keyFile: settings.keyFile))
      tokenSources[identity] = tokens
    }
    var pool = APNsConfiguration.defaultPool
    pool.connectionsMax = settings.connections
    pool.connection.streamsMax = settings.streamsPerConnection
    let configuration = APNsConfiguration(
      topic: settings.topic,
      production: try HTTP2Endpoint(url: settings.productionURL.description, tls: tls),
      sandbox: try HTTP2Endpoint(url: settings.sandboxURL.description, tls: tls), pool: pool)
    let provider = APNsProvider(configuration, tokens: tokens, loop: loop, logger: logger)
    return (provider, 2 * settings.connections * settings.streamsPerConnection, nil)
  }

  private mutating func fcm(_ app: GatewayConfiguration.App, _ logger: Logger) throws -> (
    any PushProvider, window: Int, perSecond: Int?
  ) {
    guard let settings = app.fcm else { preconditionFailure("\(app.name) has no fcm section") }
    let account = try FCMServiceAccount.load(file: settings.serviceAccountFile)
    let identity = "\(account.clientEmail) \(account.tokenURI)"
    let tokens = accessTokenSources[identity] ?? FCMTokenSource(account: account, caFile: caFile, loop: loop)
    accessTokenSources[identity] = tokens
    var pool = FCMConfiguration.defaultPool
    pool.connectionsMax = settings.connections
    pool.connection.streamsMax = settings.streamsPerConnection
    let endpoint = try HTTP2Endpoint(url: settings.url.description, tls: try TLSContext.client(caFile: caFile))
    let provider = FCMProvider(
      FCMConfiguration(projectID: account.projectID, endpoint: endpoint, pool: pool), tokens: tokens, loop: loop,
      logger: logger)
    return (provider, 2 * settings.connections * settings.streamsPerConnection, settings.ratePerSecond)
  }

  private func expo(_ app: GatewayConfiguration.App) throws -> (any PushProvider, window: Int, perSecond: Int?) {
    guard let settings = app.expo else { preconditionFailure("\(app.name) has no expo section") }
    let token = try settings.accessTokenFile.map { try ExpoConfiguration.readAccessToken(file: $0) }
    var configuration = ExpoConfiguration(url: settings.url.description, accessToken: token, caFile: caFile)
    configuration.requestsMax = settings.connections
    let provider = ExpoProvider(configuration: configuration, loop: loop)
    return (provider, 2 * settings.connections * configuration.messagesMax, settings.ratePerSecond)
  }
}

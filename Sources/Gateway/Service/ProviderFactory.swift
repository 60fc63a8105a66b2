// From the configuration of an app to its providers.

import Logging
import Providers
import Queue
import Runtime

/// Makes providers; one signing key gives one token source, whoever uses it.
struct ProviderFactory {
  let caFile: String?
  let loop: EventLoop
  private let logger: Logger
  private let outbox: PostgresOutbox
  private var tokenSources: [String: SharedTokenSource] = [:]
  private var accessTokenSources: [String: SharedTokenSource] = [:]

  init(caFile: String?, outbox: PostgresOutbox, logger: Logger) {
    self.caFile = caFile
    self.outbox = outbox
    self.loop = outbox.loop
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
    let credentials = try APNsCredentials(
      teamID: settings.teamID, keyID: settings.keyID, keyFile: settings.keyFile)
    let tokens = tokenSources[credentials.identity] ?? sharedTokens(credentials)
    tokenSources[credentials.identity] = tokens
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
    let identity = "\(account.clientEmail) \(account.tokenURI) \(account.privateKeyID)"
    let tokens = accessTokenSources[identity] ?? sharedTokens(account, identity)
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

  private func sharedTokens(_ credentials: APNsCredentials) -> SharedTokenSource {
    let clock = SystemClock()
    return SharedTokenSource(
      identity: credentials.identity, ageMin: APNsTokenSource.replacementAgeMin,
      store: OutboxTokenStore(outbox: outbox, provider: .apns)
    ) { _ throws(ProviderTokenError) in
      try APNsTokenSource.mint(credentials, wallMilliseconds: clock.wallMilliseconds())
    }
  }

  private func sharedTokens(_ account: FCMServiceAccount, _ identity: String) -> SharedTokenSource {
    let source = FCMTokenSource(account: account, caFile: caFile, loop: loop)
    return SharedTokenSource(
      identity: identity, ageMin: FCMTokenSource.replacementAgeMin,
      store: OutboxTokenStore(outbox: outbox, provider: .fcm)
    ) { refused throws(ProviderTokenError) in
      try await source.token(replacing: refused)
    }
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

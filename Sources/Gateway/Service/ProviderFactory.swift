// Makes providers from the configuration of an app, and rotations from changed credentials.

import Dispatching
import Logging
import Providers
import Queue
import Runtime
import Settings

/// A provider, with what its lane needs.
struct LaneProvider {
  let provider: any PushProvider
  /// Maximum number of deliveries that the lane holds: twice what its connections can carry, so that the next are
  /// ready.
  let window: Int
  /// The proxy of its connections; nil for none.
  var proxy: HTTPProxy?
  /// Fetches receipts; nil if the provider has none.
  var readReceipts: ReceiptCollector.Read?
  /// Identifies the credentials: other credentials have another identity.
  var identity: String
  /// FCM's project, which is part of the URL of every push.
  var project: String?
}

/// New credentials of a running lane.
struct CredentialRotation: Sendable {
  /// The identity of the new credentials.
  let identity: String
  /// Makes the provider use them.
  let apply: @Sendable () async -> Void
}

/// Makes providers. Providers with the same signing key share one source of tokens.
struct ProviderFactory {
  private struct TokenSourceKey: Hashable {
    var identity: String
    var proxy: GatewayConfiguration.Proxy?
  }

  let caFile: String?
  /// The permissions that key files must have.
  let privacy: SecretFile.Privacy
  let loop: EventLoop
  /// The permits that every provider checks.
  let permits = SendPermits()
  /// Where replicas share tokens.
  let tokenStores = TokenStores()
  private let logger: Logger
  private let tokenStore: (@Sendable (ProviderKind) -> any SharedTokenStore)?
  private var tokenSources: [TokenSourceKey: SharedTokenSource] = [:]
  /// One proxy for all apps with the same proxy and credentials.
  private var proxies: [GatewayConfiguration.Proxy: HTTPProxy] = [:]
  private var tls: TLSContext?

  /// - Parameter tokenStore: where tokens of a provider are kept; nil: in `tokenStores`.
  init(
    caFile: String?, privacy: SecretFile.Privacy = .required, loop: EventLoop, logger: Logger,
    tokenStore: (@Sendable (ProviderKind) -> any SharedTokenStore)? = nil
  ) {
    self.tokenStore = tokenStore
    self.caFile = caFile
    self.privacy = privacy
    self.loop = loop
    self.logger = logger
  }

  /// Makes the provider of a lane.
  ///
  /// - Throws: what is wrong with a key, account or certificate file, with its name.
  mutating func make(
    _ kind: ProviderKind, _ service: WebPushService? = nil, for app: GatewayConfiguration.App
  ) throws -> LaneProvider {
    var logger = logger
    logger[metadataKey: "app"] = "\(app.name)"
    logger[metadataKey: "provider"] = "\(kind.rawValue)"
    switch kind {
    case .apns: return try apns(app, logger)
    case .fcm: return try fcm(app, logger)
    case .expo: return try expo(app, logger)
    case .webpush: return try webPush(service, app, logger)
    }
  }

  /// Makes a running lane use the current credentials of its app. Returns nil if it uses them already.
  ///
  /// - Throws: what is wrong with a file, with its name. The lane keeps its credentials.
  mutating func rotation(
    of lane: LaneProvider, _ kind: ProviderKind, to app: GatewayConfiguration.App
  ) throws -> CredentialRotation? {
    switch kind {
    case .apns:
      let credentials = try credentials(of: app)
      guard credentials.identity != lane.identity, let provider = lane.provider as? HTTP2Provider else { return nil }
      let tokens = tokens(credentials)
      return CredentialRotation(identity: credentials.identity) { await provider.rotate(to: tokens) }
    case .fcm:
      let account = try account(of: app)
      guard account.identity != lane.identity, let provider = lane.provider as? HTTP2Provider else { return nil }
      let tokens = try tokens(account, of: app)
      return CredentialRotation(identity: account.identity) { await provider.rotate(to: tokens) }
    case .expo:
      let token = try accessToken(of: app)
      let identity = Self.identity(ofAccessToken: token)
      guard identity != lane.identity, let provider = lane.provider as? ExpoProvider else { return nil }
      return CredentialRotation(identity: identity) { await provider.rotate(accessToken: token) }
    case .webpush:
      let credentials = try vapid(of: app)
      guard credentials.identity != lane.identity, let provider = lane.provider as? WebPushProvider else { return nil }
      return CredentialRotation(identity: credentials.identity) { await provider.rotate(to: credentials) }
    }
  }

  /// One context for all providers, because it holds the system's root certificates, half a megabyte.
  private mutating func sharedTLS() throws(TLSError) -> TLSContext {
    if let tls { return tls }
    let made = try TLSContext.client(caFile: caFile)
    tls = made
    return made
  }

  // MARK: - Proxies

  /// The files with the credentials of proxies.
  var proxyCredentialsFiles: [String] { proxies.keys.compactMap(\.credentialsFile) }

  /// Reads the credentials of the proxies again. New connections use them.
  ///
  /// - Returns: each proxy whose credentials have changed, or the error of its file. After an error the previous
  ///   credentials stay in use.
  func renewProxyCredentials() -> [(proxy: HTTPProxy, result: Result<Void, ProxyCredentials.Failure>)] {
    proxies.compactMap { configuration, proxy in
      guard let file = configuration.credentialsFile else { return nil }
      do throws(ProxyCredentials.Failure) {
        return proxy.use(try ProxyCredentials.load(file: file, privacy: privacy)) ? (proxy, .success(())) : nil
      } catch {
        return (proxy, .failure(error))
      }
    }
  }

  /// The proxy of an app; nil for none.
  private mutating func proxy(of app: GatewayConfiguration.App) throws(ProxyCredentials.Failure) -> HTTPProxy? {
    guard let configuration = app.proxy else { return nil }
    if let proxy = proxies[configuration] { return proxy }
    let credentials = try configuration.credentialsFile.map { file throws(ProxyCredentials.Failure) in
      try ProxyCredentials.load(file: file, privacy: privacy)
    }
    let proxy = HTTPProxy(host: configuration.host, port: configuration.port, credentials: credentials)
    proxies[configuration] = proxy
    return proxy
  }

  // MARK: - APNs

  private mutating func apns(_ app: GatewayConfiguration.App, _ logger: Logger) throws -> LaneProvider {
    guard let settings = app.apns else { preconditionFailure("\(app.name) has no apns section") }
    let (tls, proxy) = (try sharedTLS(), try proxy(of: app))
    let credentials = try credentials(of: app)
    var pool = APNsConfiguration.defaultPool
    pool.connectionsMax = settings.connections
    pool.connection.streamsMax = settings.streamsPerConnection
    var configuration = APNsConfiguration(
      topic: settings.topic,
      production: try HTTP2Endpoint(url: settings.productionURL.description, tls: tls, proxy: proxy),
      sandbox: try HTTP2Endpoint(url: settings.sandboxURL.description, tls: tls, proxy: proxy), pool: pool)
    configuration.hedging = HedgingSettings(settings.hedging)
    let provider = HTTP2Provider(
      configuration, tokens: tokens(credentials), loop: loop, logger: logger, permits: permits)
    return LaneProvider(
      provider: provider, window: 2 * settings.connections * settings.streamsPerConnection, proxy: proxy,
      identity: credentials.identity)
  }

  private func credentials(of app: GatewayConfiguration.App) throws -> APNsCredentials {
    guard let settings = app.apns else { preconditionFailure("\(app.name) has no apns section") }
    return try APNsCredentials(
      teamID: settings.teamID, keyID: settings.keyID, keyFile: settings.keyFile, privacy: privacy)
  }

  private mutating func tokens(_ credentials: APNsCredentials) -> SharedTokenSource {
    let clock = SystemClock()
    return shared(.apns, credentials.identity, ageMin: APNsTokenSource.replacementAgeMin) {
      _ throws(ProviderTokenError) in
      try APNsTokenSource.mint(credentials, wallMilliseconds: clock.wallMilliseconds())
    }
  }

  // MARK: - FCM

  private mutating func fcm(_ app: GatewayConfiguration.App, _ logger: Logger) throws -> LaneProvider {
    guard let settings = app.fcm else { preconditionFailure("\(app.name) has no fcm section") }
    let account = try account(of: app)
    var pool = FCMConfiguration.defaultPool
    pool.connectionsMax = settings.connections
    pool.connection.streamsMax = settings.streamsPerConnection
    let proxy = try proxy(of: app)
    let endpoint = try HTTP2Endpoint(url: settings.url.description, tls: sharedTLS(), proxy: proxy)
    var configuration = FCMConfiguration(projectID: account.projectID, endpoint: endpoint, pool: pool)
    configuration.hedging = HedgingSettings(settings.hedging)
    let provider = HTTP2Provider(
      configuration, tokens: try tokens(account, of: app), loop: loop, logger: logger, permits: permits)
    return LaneProvider(
      provider: provider, window: 2 * settings.connections * settings.streamsPerConnection,
      proxy: proxy, identity: account.identity, project: account.projectID)
  }

  /// The project of an app's current service account.
  func project(of app: GatewayConfiguration.App) throws -> String { try account(of: app).projectID }

  private func account(of app: GatewayConfiguration.App) throws -> FCMServiceAccount {
    guard let settings = app.fcm else { preconditionFailure("\(app.name) has no fcm section") }
    return try FCMServiceAccount.load(file: settings.serviceAccountFile, privacy: privacy)
  }

  /// Apps with the same account share a source of tokens, unless they use different proxies: each fetches its tokens
  /// through its own.
  private mutating func tokens(
    _ account: FCMServiceAccount, of app: GatewayConfiguration.App
  ) throws -> SharedTokenSource {
    let source = FCMTokenSource(account: account, caFile: caFile, proxy: try proxy(of: app), loop: loop)
    return shared(.fcm, account.identity, by: app.proxy, ageMin: .zero) {
      refused throws(ProviderTokenError) in
      try await source.token(replacing: refused)
    }
  }

  private mutating func shared(
    _ provider: ProviderKind, _ identity: String, by proxy: GatewayConfiguration.Proxy? = nil, ageMin: Nanoseconds,
    mint: @escaping @Sendable (ProviderToken?) async throws(ProviderTokenError) -> ProviderToken
  ) -> SharedTokenSource {
    let key = TokenSourceKey(identity: identity, proxy: proxy)
    if let source = tokenSources[key] { return source }
    let source = SharedTokenSource(
      identity: identity, ageMin: ageMin,
      store: tokenStore?(provider) ?? OutboxTokenStore(stores: tokenStores, provider: provider),
      mint: mint)
    tokenSources[key] = source
    return source
  }

  // MARK: - Expo

  private mutating func expo(_ app: GatewayConfiguration.App, _ logger: Logger) throws -> LaneProvider {
    guard let settings = app.expo else { preconditionFailure("\(app.name) has no expo section") }
    let token = try accessToken(of: app)
    var configuration = ExpoConfiguration(url: settings.url.description, accessToken: token, caFile: caFile)
    configuration.requestsMax = settings.connections
    let proxy = try proxy(of: app)
    configuration.connections.proxy = proxy
    configuration.connections.logger = logger
    let provider = ExpoProvider(configuration: configuration, loop: loop, permits: permits)
    return LaneProvider(
      provider: provider, window: 2 * settings.connections * configuration.messagesMax,
      proxy: proxy, readReceipts: { await provider.receipts(of: $0) },
      identity: Self.identity(ofAccessToken: token))
  }

  private func accessToken(of app: GatewayConfiguration.App) throws -> String? {
    try app.expo?.accessTokenFile.map { try ExpoConfiguration.readAccessToken(file: $0, privacy: privacy) }
  }

  private static func identity(ofAccessToken token: String?) -> String {
    token.map { String(decoding: SHA256.hexDigest(Array($0.utf8)), as: UTF8.self) } ?? "none"
  }

  // MARK: - Web push

  private mutating func webPush(
    _ service: WebPushService?, _ app: GatewayConfiguration.App, _ logger: Logger
  ) throws -> LaneProvider {
    guard let settings = app.webPush else { preconditionFailure("\(app.name) has no webpush section") }
    let credentials = try vapid(of: app)
    let (tls, proxy) = (try sharedTLS(), try proxy(of: app))
    var pool = WebPushConfiguration.defaultPool
    pool.connectionsMax = settings.connections
    var configuration = WebPushConfiguration(tls: tls, proxy: proxy, allowedOrigins: settings.origins, pool: pool)
    configuration.originsMax = settings.originsMax(of: service)
    let provider = WebPushProvider(
      configuration, credentials: credentials, loop: loop, logger: logger, permits: permits)
    return LaneProvider(
      provider: provider, window: 2 * configuration.requestsMax, proxy: proxy,
      identity: credentials.identity)
  }

  private func vapid(of app: GatewayConfiguration.App) throws -> WebPushCredentials {
    guard let settings = app.webPush else { preconditionFailure("\(app.name) has no webpush section") }
    return try WebPushCredentials(keyFile: settings.vapidKeyFile, subject: settings.subject, privacy: privacy)
  }
}

extension HedgingSettings {
  /// Nil if hedging is off.
  fileprivate init?(_ configuration: GatewayConfiguration.Hedging) {
    guard configuration.percentMax > 0 else { return nil }
    self.init()
    delayMin = .milliseconds(Int64(max(1, configuration.afterMilliseconds)))
    percentMax = configuration.percentMax
  }
}

extension FCMServiceAccount {
  /// Identifies the key among all service accounts. The fingerprint distinguishes another key with the same ID.
  fileprivate var identity: String { "\(clientEmail) \(tokenURI) \(privateKeyID) \(key.fingerprint)" }
}

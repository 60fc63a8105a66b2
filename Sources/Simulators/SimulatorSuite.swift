// All simulators of one app: APNs production and sandbox, FCM with its token endpoint, Expo, a push service of browsers.

public import Runtime

/// The five listening simulators, and the credentials to use them.
///
/// ```swift
/// let suite = try await SimulatorSuite.start()
/// // … a gateway with suite.material's keys sends to suite.endpoints …
/// let pushes = try await suite.fcm.waitForAccepted(1)
/// await suite.stop()
/// ```
public struct SimulatorSuite: Sendable {
  public struct Configuration: Sendable {
    /// Ports; 0 lets the system choose.
    public struct Ports: Sendable {
      public var apns: UInt16 = 0
      public var apnsSandbox: UInt16 = 0
      public var fcm: UInt16 = 0
      public var expo: UInt16 = 0
      public var webPush: UInt16 = 0
      /// Of the log, which is served read-only if `logFile` is set; nil: it is not served.
      public var log: UInt16?
      public init() {}
    }

    public var ports = Ports()
    /// The IP address to listen on.
    public var address = "127.0.0.1"
    /// The host name or address in the URLs; the certificate must be valid for it.
    public var host = "127.0.0.1"
    /// Maximum number of streams of an APNs connection after its first authorised request (Apple: about 1,000).
    public var apnsStreamsMax: UInt32 = 1_000
    /// Maximum number of streams of a connection to FCM (Google: 100), Expo and the push service of browsers.
    public var streamsMax: UInt32 = 100
    /// Seconds by which the simulators' clocks are fast in the `date` of their answers.
    public var clockOffset: Int64 = 0
    /// APNs: public keys by key id that are accepted in addition to the material's own key.
    public var apnsKeys: [String: VerifyingKey] = [:]
    /// APNs: see `APNsSimulator.Configuration.keyEnvironment`.
    public var apnsKeyEnvironment: APNsSimulator.Environment?
    public var journal = SimulatorJournal.Options()
    public var logFile: String?
    public var faults = FaultPlan()
    /// APNs: see `APNsSimulator.Configuration.tokenUpdateInterval`.
    public var tokenUpdateInterval: Int64?
    /// Lifetime of FCM access tokens, seconds.
    public var accessTokenLifetime: Int64 = 3_599
    /// FCM: see `FCMSimulator.Configuration.requiresDataOnly`.
    public var requiresDataOnly = false
    /// Expo: whether the material's access token is required.
    public var requiresExpoAccessToken = false
    /// Expo: seconds until a receipt can be read.
    public var receiptDelay: Int64 = 0
    /// Expo: see `ExpoSimulator.Configuration.notificationsPerSecond`.
    public var expoNotificationsPerSecond: Int?
    /// The database URL for the gateway's configuration file; nil leaves it out.
    public var database: String?
    /// The gateway's HTTP address for its configuration file.
    public var http = "127.0.0.1:8080"

    public init() {}
  }

  public let apnsProduction: SimulatorServer
  public let apnsSandbox: SimulatorServer
  public let fcm: SimulatorServer
  public let expo: SimulatorServer
  public let webPush: SimulatorServer
  /// Serves the log; nil if it is not served.
  public let log: SimulatorServer?
  public let endpoints: SimulatorEndpoints
  public let material: SimulatorMaterial

  /// The five simulators, with the names used for their counters, and the server of the log if there is one.
  public var all: [(name: String, server: SimulatorServer)] {
    [("apns", apnsProduction), ("apns_sandbox", apnsSandbox), ("fcm", fcm), ("expo", expo), ("webpush", webPush)]
      + (log.map { [("log", $0)] } ?? [])
  }

  /// Starts all five, and writes the service account, a browser's subscription and the gateway's configuration into the
  /// material's directory.
  ///
  /// - Parameter material: nil creates new material in a temporary directory.
  /// - Throws: if a port cannot be bound or a file cannot be used.
  public static func start(
    _ configuration: Configuration = Configuration(), material: SimulatorMaterial? = nil
  ) async throws -> SimulatorSuite {
    let suite = try SimulatorSuite(configuration, material: material ?? SimulatorMaterial(hosts: [configuration.host]))
    try suite.material.writeServiceAccount(tokenURI: suite.endpoints.token)
    try suite.material.writeConfiguration(
      suite.endpoints, database: configuration.database, http: configuration.http)
    try suite.material.writeWebPushSubscription(endpoint: suite.endpoints.webPushEndpoint("browser-1"))
    for (_, server) in suite.all { await server.start() }
    return suite
  }

  private init(_ configuration: Configuration, material: SimulatorMaterial) throws {
    let tls = try TLSContext.server(
      certificateFile: material.certificateFile, keyFile: material.certificateKeyFile)
    let identity = material.identity
    var started: [SimulatorServer] = []
    func serve(
      _ name: String, _ port: UInt16, _ streamsMax: UInt32, before: UInt32? = nil, writesLog: Bool = true,
      _ service: @Sendable (UInt16) -> any SimulatedService
    ) throws -> SimulatorServer {
      let options = SimulatorServer.Options(
        address: configuration.address, port: port, streamsMax: streamsMax, streamsMaxBeforeAuthorisation: before,
        clockOffset: configuration.clockOffset,
        journal: configuration.journal, logFile: writesLog ? configuration.logFile : nil)
      do {
        started.append(try SimulatorServer(name: name, options: options, tls: tls, service: service))
      } catch {
        for server in started { server.loop.stop() }
        throw error
      }
      return started[started.count - 1]
    }
    func apns(_ environment: APNsSimulator.Environment) throws -> APNsSimulator {
      var keys = configuration.apnsKeys
      keys[identity.keyID] = try material.apnsKey.verifyingKey()
      var rules = APNsSimulator.Configuration(
        environment: environment, keys: keys, teamIDs: [identity.teamID], topics: [identity.topic],
        tokenUpdateInterval: configuration.tokenUpdateInterval)
      rules.keyEnvironment = configuration.apnsKeyEnvironment
      return APNsSimulator(rules, faults: configuration.faults)
    }
    let (production, sandbox) = (try apns(.production), try apns(.sandbox))
    let oauthKey = try material.fcmKey.verifyingKey()
    let expoRules = ExpoSimulator(
      .init(
        accessToken: configuration.requiresExpoAccessToken ? material.expoAccessToken : nil,
        receiptDelay: configuration.receiptDelay,
        notificationsPerSecond: configuration.expoNotificationsPerSecond),
      faults: configuration.faults)
    @Sendable func url(_ port: UInt16) -> String { "https://\(configuration.host):\(port)" }

    let ports = configuration.ports
    apnsProduction = try serve("sim-apns", ports.apns, configuration.apnsStreamsMax, before: 1) { _ in production }
    apnsSandbox = try serve("sim-apns-sbx", ports.apnsSandbox, configuration.apnsStreamsMax, before: 1) { _ in sandbox }
    fcm = try serve("sim-fcm", ports.fcm, configuration.streamsMax) { port in
      FCMSimulator(
        .init(
          project: identity.project,
          oauth: .init(
            key: oauthKey, issuer: identity.clientEmail, audience: "\(url(port))/token",
            lifetime: configuration.accessTokenLifetime),
          requiresDataOnly: configuration.requiresDataOnly),
        faults: configuration.faults)
    }
    expo = try serve("sim-expo", ports.expo, configuration.streamsMax) { _ in expoRules }
    let (browser, applicationServerKey) = (material.browser, try material.webPushKey.publicKeyPoint())
    webPush = try serve("sim-webpush", ports.webPush, configuration.streamsMax) { port in
      WebPushSimulator(
        .init(origin: url(port), browser: browser, applicationServerKey: applicationServerKey),
        faults: configuration.faults)
    }
    if let path = configuration.logFile, let port = ports.log {
      log = try serve("sim-log", port, configuration.streamsMax, writesLog: false) { _ in
        SimulatorLogService(path: path)
      }
    } else {
      log = nil
    }
    endpoints = SimulatorEndpoints(
      apnsProduction: url(apnsProduction.port), apnsSandbox: url(apnsSandbox.port), fcm: url(fcm.port),
      token: "\(url(fcm.port))/token", expo: url(expo.port),
      webPush: url(webPush.port))
    self.material = material
  }

  /// Replaces the plan of all five.
  public func setFaults(_ plan: FaultPlan) async {
    for (_, server) in all { await server.setFaults(plan) }
  }

  /// Stops all five; see `SimulatorServer.stop()`.
  /// - Returns: the counters at the end, with the names of `all`.
  @discardableResult
  public func stop() async -> [(name: String, counters: SimulatorCounters)] {
    var counters: [(name: String, counters: SimulatorCounters)] = []
    for (name, server) in all { counters.append((name, await server.stop())) }
    return counters
  }
}

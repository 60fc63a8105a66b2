// The certificates, keys, accounts and configuration that a gateway and the simulators need, in one directory. Existing
// keys are used again, so that a restarted simulator still matches its gateway.

public import Runtime

/// The credentials of a fictitious app, on disk.
public struct SimulatorMaterial: Sendable {
  /// The identity of the app.
  public struct Identity: Sendable {
    public var app: String
    public var dialect: String
    public var teamID: String
    public var keyID: String
    /// The bundle id.
    public var topic: String
    public var project: String

    public init(
      app: String = "porteiro", dialect: String = "intercom", teamID: String = "TEAM123456",
      keyID: String = "KEY7654321", topic: String = "com.example.app", project: String = "simulated-project"
    ) {
      self.app = app
      self.dialect = dialect
      self.teamID = teamID
      self.keyID = keyID
      self.topic = topic
      self.project = project
    }

    /// The FCM service account's name.
    public var clientEmail: String { "push-gateway@\(project).iam.gserviceaccount.com" }
  }

  public let identity: Identity
  /// The absolute path of the directory.
  public let directory: String
  /// Signs provider tokens (ES256); also in `apnsKeyFile`.
  public let apnsKey: SigningKey
  /// Signs OAuth assertions (RS256); also in `serviceAccountFile`.
  public let fcmKey: SigningKey
  /// The access token that the Expo simulator can require.
  public let expoAccessToken: String

  /// Signs VAPID tokens (ES256); also in `webPushKeyFile`.
  public let webPushKey: SigningKey
  /// The keys of all web push subscriptions.
  public let browser: WebPushBrowser

  public var authorityFile: String { "\(directory)/ca.pem" }
  public var certificateFile: String { "\(directory)/server.pem" }
  public var certificateKeyFile: String { "\(directory)/server.key" }
  public var apnsKeyFile: String { "\(directory)/apns-key.p8" }
  public var serviceAccountFile: String { "\(directory)/fcm-service-account.json" }
  public var expoAccessTokenFile: String { "\(directory)/expo-access-token" }
  public var webPushKeyFile: String { "\(directory)/webpush-key.pem" }
  /// The subscription of a browser, as `PushSubscription.toJSON()` returns it.
  public var webPushSubscriptionFile: String { "\(directory)/webpush-subscription.json" }
  /// A key for the gateway's dashboard.
  public var opsKeyFile: String { "\(directory)/ops-key" }
  public var configurationFile: String { "\(directory)/gateway.yaml" }
  private static let fcmKeyFileName = "fcm-key.pem"

  /// Opens a directory and creates the missing files in it.
  ///
  /// - Parameters:
  ///   - directory: created if it does not exist; nil for a new temporary one.
  ///   - hosts: names and addresses in the server's certificate besides the loopback; used only if a certificate is
  ///     created.
  /// - Throws: if a file cannot be written, or an existing one cannot be used.
  public init(
    directory: String? = nil, identity: Identity = Identity(), hosts: [String] = []
  ) throws {
    if let directory {
      try MaterialFile.makeDirectory(directory)
      self.directory = try MaterialFile.absolute(directory)
    } else {
      self.directory = try MaterialFile.makeTemporaryDirectory()
    }
    self.identity = identity
    apnsKey = try Self.key(in: "\(self.directory)/apns-key.p8", .es256)
    fcmKey = try Self.key(in: "\(self.directory)/\(Self.fcmKeyFileName)", .rs256)
    webPushKey = try Self.key(in: "\(self.directory)/webpush-key.pem", .es256)
    browser = try Self.browser(in: self.directory)
    let tokenFile = "\(self.directory)/expo-access-token"
    if let text = MaterialFile.read(tokenFile) {
      expoAccessToken = String(decoding: text.prefix { $0 > 0x20 }, as: UTF8.self)
    } else {
      expoAccessToken = String((0..<40).compactMap { _ in "abcdefghijklmnopqrstuvwxyz0123456789".randomElement() })
      try MaterialFile.write(Array("\(expoAccessToken)\n".utf8), to: tokenFile, isSecret: true)
    }
    if MaterialFile.read(opsKeyFile) == nil {
      let key = String((0..<64).compactMap { _ in "0123456789abcdef".randomElement() })
      try MaterialFile.write(Array("\(key)\n".utf8), to: opsKeyFile, isSecret: true)
    }
    let names = ["ca.pem", "server.pem", "server.key"].map { "\(self.directory)/\($0)" }
    if names.contains(where: { MaterialFile.read($0) == nil }) {
      let loopback = ["localhost", "127.0.0.1", "::1"]
      let certificates = try TestCertificates(hosts: loopback + hosts.filter { !loopback.contains($0) })
      try MaterialFile.write(certificates.authority, to: names[0])
      try MaterialFile.write(certificates.certificate, to: names[1])
      try MaterialFile.write(certificates.key, to: names[2], isSecret: true)
    }
  }

  /// It takes a quarter of a second to make, so all suites of a process that need a new one share it.
  private static let newRSAKey = Result { try SigningKey.generate(for: .rs256) }

  private static func key(in path: String, _ algorithm: SignatureAlgorithm) throws -> SigningKey {
    if MaterialFile.read(path) != nil { return try SigningKey.load(pemFile: path, for: algorithm) }
    let key = algorithm == .rs256 ? try newRSAKey.get() : try SigningKey.generate(for: algorithm)
    try MaterialFile.write(try key.privateKeyPEM(), to: path, isSecret: true)
    return key
  }

  /// The browser's key pair and its secret, each in a file.
  private static func browser(in directory: String) throws -> WebPushBrowser {
    let keyFile = "\(directory)/webpush-browser.pem"
    let authFile = "\(directory)/webpush-browser-auth"
    if let pem = MaterialFile.read(keyFile), let text = MaterialFile.read(authFile),
      let auth = Base64URL.decode(text.prefix { $0 > 0x20 }), auth.count == 16
    {
      return WebPushBrowser(key: try KeyAgreementKey(pem: pem, source: keyFile), auth: auth)
    }
    guard let browser = WebPushBrowser.generate() else { throw CertificateError(step: "a browser's key") }
    try MaterialFile.write(try browser.key.privateKeyPEM(), to: keyFile, isSecret: true)
    try MaterialFile.write(Base64URL.encode(browser.auth) + [0x0A], to: authFile, isSecret: true)
    return browser
  }

  /// Writes a browser's subscription to the simulated push service.
  ///
  /// - Parameter endpoint: its URL.
  public func writeWebPushSubscription(endpoint: String) throws {
    try MaterialFile.write(browser.json(endpoint: endpoint) + [0x0A], to: webPushSubscriptionFile, isSecret: true)
  }

  /// Writes the service account's JSON file, which names the token endpoint.
  public func writeServiceAccount(tokenURI: String) throws {
    var writer = JSONWriter(reservingCapacity: 4_096)
    writer.beginObject()
    writer.key("type")
    writer.string("service_account" as StaticString)
    writer.key("project_id")
    writer.string(identity.project)
    writer.key("private_key_id")
    writer.string("0123456789abcdef0123456789abcdef01234567" as StaticString)
    writer.key("private_key")
    writer.string(try fcmKey.privateKeyPEM())
    writer.key("client_email")
    writer.string(identity.clientEmail)
    writer.key("client_id")
    writer.string("100000000000000000001" as StaticString)
    writer.key("token_uri")
    writer.string(tokenURI)
    writer.endObject()
    try MaterialFile.write(writer.bytes, to: serviceAccountFile, isSecret: true)
  }

  /// Writes a gateway's configuration for the simulators.
  /// - Parameter database: the Postgres URL; with nil the gateway reads `DATABASE_URL`.
  public func writeConfiguration(
    _ endpoints: SimulatorEndpoints, database: String?, http: String = "127.0.0.1:8080"
  ) throws {
    let database = database.map { "database: \(Self.quoted($0))" } ?? "# database: from DATABASE_URL"
    let text = """
      # A gateway for the simulators in this directory; written by `push-gateway-lab simulate`.
      \(database)
      http:
        listen: \(http)
      dashboard:
        ops_key_file: \(Self.quoted(opsKeyFile))
      tls:
        ca_file: \(Self.quoted(authorityFile))
      apps:
        \(identity.app):
          dialect: \(identity.dialect)
          ring_seconds: 60
          apns:
            team_id: \(identity.teamID)
            key_id: \(identity.keyID)
            key_file: \(Self.quoted(apnsKeyFile))
            topic: \(identity.topic)
            production_url: \(endpoints.apnsProduction)
            sandbox_url: \(endpoints.apnsSandbox)
          fcm:
            service_account_file: \(Self.quoted(serviceAccountFile))
            url: \(endpoints.fcm)
          expo:
            url: \(endpoints.expo)
            access_token_file: \(Self.quoted(expoAccessTokenFile))

      """ + (endpoints.webPush.isEmpty ? "" : webPushSection(endpoints))
    try MaterialFile.write(Array(text.utf8), to: configurationFile, isSecret: true)
  }

  private func webPushSection(_ endpoints: SimulatorEndpoints) -> String {
    """
        webpush:
          vapid_key_file: \(Self.quoted(webPushKeyFile))
          subject: mailto:ops@example.com
          origins: \(endpoints.webPush)

    """
  }

  /// A JSON string, which is a YAML string too.
  private static func quoted(_ text: String) -> String {
    var writer = JSONWriter(reservingCapacity: text.utf8.count + 2)
    writer.string(text)
    return String(decoding: writer.bytes, as: UTF8.self)
  }
}

/// Where the simulators listen: URLs without a path.
public struct SimulatorEndpoints: Sendable, Equatable {
  public let apnsProduction: String
  public let apnsSandbox: String
  public let fcm: String
  /// The OAuth token endpoint, with its path.
  public let token: String
  public let expo: String
  /// The push service of the simulated browsers.
  public var webPush = ""

  /// The endpoint of a web push subscription.
  ///
  /// - Parameter name: letters, digits, `-`, `_`, `.` and `:`.
  public func webPushEndpoint(_ name: String) -> String { "\(webPush)/push/\(name)" }
}

// Reads file and environment into a checked configuration.

internal import Dialects
internal import Foundation
internal import Logging
internal import Providers
internal import Queue
internal import Runtime

extension GatewayConfiguration {
  /// Reads and checks the whole configuration.
  ///
  /// - Parameters:
  ///   - file: the YAML file; nil for the environment alone.
  ///   - environment: the process's variables. `DATABASE_URL` overrides every other setting of the database.
  /// - Throws: every problem found, not only the first.
  package static func load(file: String?, environment: [String: String]) throws(ConfigurationError)
    -> GatewayConfiguration
  {
    var reader = try reader(file, environment)
    if file == nil, reader.problems.isEmpty, reader.source.names(below: ["apps"]).isEmpty {
      let problem = ConfigurationProblem(
        origin: .file(line: nil), path: "",
        message: "no file was named, and no variable names an app: give --config FILE, or set PUSH_GATEWAY_CONFIG")
      throw ConfigurationError(file: nil, problems: [problem])
    }
    checkPrivacy(of: file, &reader)
    let privacy = secretPrivacy(&reader)
    let proxy = proxy(["proxy"], default: nil, &reader)
    let databases = databases(&reader, environment)
    let configuration = GatewayConfiguration(
      databases: databases,
      http: reader.listener(["http", "listen"], default: "127.0.0.1:8080"),
      httpConnectionsMax: reader.integer(["http", "connections_max"], in: 1...100_000, default: 128),
      httpTLS: listenerTLS(["http", "tls"], takesClients: false, &reader), api: api(["api"], databases, &reader),
      hasDashboard: reader.choice(["dashboard", "enabled"], [("true", true), ("false", false)], default: true),
      opsAccess: opsAccess(&reader, privacy),
      caFile: reader.file(["tls", "ca_file"]), proxy: proxy,
      secretPrivacy: privacy,
      logLevel: reader.choice(
        ["log", "level"], Logger.Level.allCases.map { ($0.rawValue, $0) }, default: .info),
      logFormat: reader.choice(["log", "format"], LogFormat.allCases.map { ($0.rawValue, $0) }, default: nil),
      drainSeconds: reader.integer(["shutdown", "drain_seconds"], in: 0...300, default: 10), apps: apps(proxy, &reader))
    checkFronts(configuration.apps, &reader)
    guard reader.problems.isEmpty else { throw ConfigurationError(file: file, problems: reader.problems) }
    return configuration
  }

  /// Reads only the databases, for commands that need nothing else. With `DATABASE_URL` set, no file is needed, and its database
  /// is the only one.
  ///
  /// - Parameter mustBeReadable: whether the file is read even so. One that was given for this command should not be ignored.
  package static func loadDatabases(
    file: String?, mustBeReadable: Bool = false, environment: [String: String]
  ) throws(ConfigurationError) -> [Database] {
    if let url = environment["DATABASE_URL"], DatabaseURL.fault(of: url) == nil {
      if mustBeReadable { _ = try text(file) }
      return [Database(url: url)]
    }
    var reader = try reader(file, environment)
    checkPrivacy(of: file, &reader)
    let databases = databases(&reader, environment)
    guard reader.problems.isEmpty else { throw ConfigurationError(file: file, problems: reader.problems) }
    return databases
  }

  // MARK: - Sections

  private static func databases(_ reader: inout ConfigurationReader, _ environment: [String: String]) -> [Database] {
    let names = reader.source.names(below: ["databases"])
    guard !names.isEmpty else { return [Database(url: databaseURL(&reader, environment))] }
    if environment["DATABASE_URL"]?.isEmpty == false {
      reader.note(
        environment: "DATABASE_URL", ["databases"],
        "there are several databases: unset DATABASE_URL, or remove databases")
    } else if reader.text(["database"]) != nil {
      reader.note(["database"], "cannot be combined with databases: add it there, with a name")
    }
    return names.map { name in
      let path = ["databases", name, "url"]
      let url = reader.requiredWord(path)
      if !url.isEmpty, let fault = DatabaseURL.fault(of: url) { reader.note(path, fault) }
      return Database(name: name, url: url)
    }
  }

  private static func databaseURL(_ reader: inout ConfigurationReader, _ environment: [String: String]) -> String {
    if let url = environment["DATABASE_URL"], !url.isEmpty {
      if let fault = DatabaseURL.fault(of: url) { reader.note(environment: "DATABASE_URL", ["database"], fault) }
      return url
    }
    guard let url = reader.text(["database"]) else {
      if !reader.source.misspelt.contains("database") {
        reader.note(["database"], "is missing; it may also be given as DATABASE_URL")
      }
      return ""
    }
    if let fault = DatabaseURL.fault(of: url) { reader.note(["database"], fault) }
    return url
  }

  private static func secretPrivacy(_ reader: inout ConfigurationReader) -> SecretFile.Privacy {
    reader.choice(
      ["security", "allow_readable_secrets"], [("true", .waived), ("false", .required)], default: .required)
  }

  /// If the configuration file contains a password, the rules for files with secrets apply to it.
  private static func checkPrivacy(of file: String?, _ reader: inout ConfigurationReader) {
    guard let file, reader.text(["security", "allow_readable_secrets"]) != "true" else { return }
    let withPassword = reader.source.fileDatabases.filter { PostgresHosts.givesPassword($0.setting.text) }
    guard !withPassword.isEmpty, let fault = SecretFile.exposure(of: file) else { return }
    for (path, setting) in withPassword { reader.note(setting, path, "contains a password. \(fault)") }
  }

  /// A section that is present turns TLS on, so it must be complete.
  private static func listenerTLS(
    _ path: [String], takesClients: Bool, _ reader: inout ConfigurationReader
  ) -> ListenerTLS? {
    guard reader.source.has(path) else { return nil }
    var tls = ListenerTLS(
      certificateFile: reader.requiredFile(path + ["certificate_file"]),
      keyFile: reader.requiredFile(path + ["key_file"]))
    guard takesClients else { return tls }
    tls.clientCAFile = reader.file(path + ["client_ca_file"])
    let certificates = path + ["client_certificates"]
    tls.clientCertificates = reader.choice(
      certificates, ListenerTLS.ClientCertificates.allCases.map { ($0.rawValue, $0) }, default: .required)
    if reader.text(certificates) != nil, reader.text(path + ["client_ca_file"]) == nil {
      reader.note(certificates, "needs client_ca_file, the authorities that issue the accepted certificates")
    }
    return tls
  }

  /// The section is checked even if the API is off, so that turning it on later reveals no errors.
  private static func api(_ path: [String], _ databases: [Database], _ reader: inout ConfigurationReader) -> API? {
    let isEnabled = reader.choice(path + ["enabled"], [("true", true), ("false", false)], default: false)
    let api = API(
      listener: reader.listener(path + ["listen"], default: "127.0.0.1:8081"),
      bodyMaxBytes: reader.integer(path + ["body_max_bytes"], in: 1024...1_048_576, default: 65_536),
      requestTimeoutSeconds: reader.integer(path + ["request_timeout_seconds"], in: 1...300, default: 10),
      busyAfterSeconds: reader.integer(path + ["busy_after_seconds"], in: 1...600, default: 5),
      ratePerSecond: reader.integer(path + ["rate_per_second"], in: 1...1_000_000, default: 1000),
      connectionsMax: reader.integer(path + ["connections_max"], in: 1...100_000, default: 512),
      database: reader.choice(
        path + ["database"], databases.compactMap { database in database.name.map { ($0, database) } },
        default: databases[0]),
      trustedProxies: reader.ranges(path + ["trusted_proxies"]),
      tls: listenerTLS(path + ["tls"], takesClients: true, &reader),
      matrixNetworks: matrixNetworks(path + ["matrix"], &reader), gorush: gorush(path + ["gorush"], &reader))
    return isEnabled ? api : nil
  }

  private static func apps(_ proxy: Proxy?, _ reader: inout ConfigurationReader) -> [App] {
    let names = reader.source.names(below: ["apps"])
    if names.isEmpty, !reader.hasProblems(in: ["apps"]), !reader.source.misspelt.contains("apps") {
      reader.note(["apps"], "must contain at least one app")
    }
    return names.compactMap { app($0, proxy, &reader) }
  }

  private static func app(_ name: String, _ proxy: Proxy?, _ reader: inout ConfigurationReader) -> App? {
    let path = ["apps", name]
    guard let (dialect, templatesFile) = dialect(path, &reader) else { return nil }
    let app = App(
      name: name, dialect: dialect, locale: reader.locale(path + ["locale"]),
      unknownName: reader.name(path + ["unknown_name"]),
      ringSeconds: reader.integer(path + ["ring_seconds"], in: 1...600, default: 60),
      escalateAfterSeconds: reader.integer(path + ["escalate_after_seconds"], in: 1...600),
      isAtLeastOnce: reader.choice(path + ["at_least_once"], [("true", true), ("false", false)], default: false),
      missedCalls: reader.choice(
        path + ["missed_calls"], GatewayConfiguration.MissedCalls.allCases.map { ($0.rawValue, $0) }, default: nil),
      missedCallChannel: reader.name(path + ["missed_call_channel"]),
      hasVoIPCancel: reader.choice(path + ["voip_cancel"], [("true", true), ("false", false)], default: false),
      sendsMessageText: reader.choice(path + ["message_text"], [("true", true), ("false", false)], default: false),
      quota: quota(path + ["quota"], &reader), proxy: self.proxy(path + ["proxy"], default: proxy, &reader),
      invalidation: invalidation(path + ["invalidation"], &reader), templatesFile: templatesFile,
      apns: apns(path + ["apns"], dialect, &reader),
      fcm: fcm(path + ["fcm"], dialect, &reader), expo: expo(path + ["expo"], &reader),
      webPush: webPush(path + ["webpush"], &reader),
      webhook: webhook(path + ["webhook"], &reader),
      matrix: matrix(path + ["matrix"], &reader))
    if let escalateAfter = app.escalateAfterSeconds, escalateAfter >= app.ringSeconds {
      reader.note(
        path + ["escalate_after_seconds"],
        "must be less than ring_seconds (\(app.ringSeconds)), otherwise no call would ring long enough")
    }
    if app.providers.isEmpty, !reader.hasProblems(in: path) {
      reader.note(path, "must contain at least one of \(ProviderKind.names("and"))")
    }
    let templatesAreRight = !["templates", "templates_file"].contains { reader.hasProblems(in: path + [$0]) }
    for provider in app.providers where templatesAreRight && !dialect.speaks(provider) {
      reader.note(
        path + [provider.rawValue], "the dialect \(dialect.name) does not support calls over \(provider.rawValue)")
    }
    if templatesAreRight {
      checkVoIPCancel(of: app, path, &reader)
      checkUse(of: app, path, &reader)
    }
    return app
  }

  /// What no template of the dialect uses would have no effect.
  private static func checkUse(of app: App, _ path: [String], _ reader: inout ConfigurationReader) {
    if app.sendsMessageText, !app.dialect.showsMessageText {
      reader.note(
        path + ["message_text"],
        "the dialect \(app.dialect.name) never shows the text of a message: remove message_text, or add a template with "
          + "${messageText|newMessageText}")
    }
    if app.missedCallChannel != nil, !app.dialect.hasMissedCallChannel {
      reader.note(
        path + ["missed_call_channel"],
        "the app of the dialect \(app.dialect.name) chooses the channel itself: remove missed_call_channel, or add a template "
          + "with ${missedCallChannel|'default'}")
    }
  }

  private static func quota(_ path: [String], _ reader: inout ConfigurationReader) -> Quota {
    func limit(_ name: String) -> Int? { reader.integer(path + [name], in: 0...1_000_000) }
    return Quota(
      callsPerMinute: limit("calls_per_minute"), notificationsPerMinute: limit("notifications_per_minute"),
      recipientsPerMinute: limit("recipients_per_minute"))
  }

  /// Apps that do not understand a VoIP push for the end of a call would ring. So both the app's settings and its
  /// dialect must allow it.
  private static func checkVoIPCancel(of app: App, _ path: [String], _ reader: inout ConfigurationReader) {
    let dialect = app.dialect
    if app.hasVoIPCancel, !dialect.cancelsOverVoIP {
      reader.note(
        path + ["voip_cancel"],
        "the dialect \(dialect.name) has no cancel over APNs, so a cancel would make its phones ring: "
          + "remove voip_cancel, or add the template apns.cancel")
    } else if app.hasVoIPCancel, app.apns == nil, !reader.hasProblems(in: path + ["apns"]) {
      reader.note(path + ["voip_cancel"], "needs the section apns, which the app does not have")
    } else if !app.hasVoIPCancel, dialect.cancelsOverVoIP,
      (try? ShippedDialects.named(dialect.name))?.cancelsOverVoIP == false
    {
      reader.note(
        path,
        "the template apns.cancel is used only with voip_cancel: true, which states that the app's phones understand it"
      )
    }
  }

  /// The chosen dialect with the app's own templates, and the file that they are in, if they are in one.
  private static func dialect(_ path: [String], _ reader: inout ConfigurationReader) -> (Dialect, file: String?)? {
    let name = reader.choice(path + ["dialect"], ShippedDialects.names.map { ($0, $0) }, default: "intercom")
    guard var dialect = try? ShippedDialects.named(name) else { return nil }
    let file = reader.file(path + ["templates_file"])
    if let file, let tree = reader.tree(file, path + ["templates_file"]) {
      lay(tree, path + ["templates_file"], over: &dialect, &reader)
    }
    if let tree = reader.source.trees[path + ["templates"]] {
      lay(tree, path + ["templates"], over: &dialect, &reader)
    }
    return (dialect, file)
  }

  private static func lay(
    _ tree: ConfigurationTree, _ path: [String], over dialect: inout Dialect, _ reader: inout ConfigurationReader
  ) {
    for fault in dialect.lay(over: tree.json) { reader.note(tree, at: fault.path, below: path, fault.message) }
  }

  /// A section replaces the whole default, including its credentials, so that no proxy receives the credentials of
  /// another.
  private static func proxy(
    _ path: [String], default fallback: Proxy?, _ reader: inout ConfigurationReader
  ) -> Proxy? {
    guard reader.source.has(path) else { return fallback }
    let credentialsFile = reader.file(path + ["credentials_file"])
    if reader.text(path + ["url"]) == "none" {
      if reader.text(path + ["credentials_file"]) != nil {
        reader.note(path + ["credentials_file"], "is not used, because url is none: remove it, or set url")
      }
      return nil
    }
    guard let (host, port) = reader.proxyURL(path + ["url"]) else { return nil }
    return Proxy(host: host, port: port, credentialsFile: credentialsFile)
  }

  private static func invalidation(_ path: [String], _ reader: inout ConfigurationReader) -> Invalidation {
    Invalidation(
      deadPercent: reader.integer(path + ["dead_percent"], in: 1...100, default: 20),
      answersMin: reader.integer(path + ["answers_min"], in: 1...1_000_000, default: 200),
      windowSeconds: reader.integer(path + ["window_seconds"], in: 1...86_400, default: 300))
  }

  private static func apns(
    _ path: [String], _ dialect: Dialect, _ reader: inout ConfigurationReader
  ) -> APNs? {
    guard reader.source.has(path) else { return nil }
    let topic = reader.requiredWord(path + ["topic"])
    if topic.hasSuffix(".voip") {
      reader.note(path + ["topic"], "must be the bundle id without .voip, which is appended for VoIP pushes")
    }
    return APNs(
      teamID: reader.requiredWord(path + ["team_id"]), keyID: reader.requiredWord(path + ["key_id"]),
      keyFile: reader.requiredFile(path + ["key_file"]), topic: topic,
      productionURL: reader.providerURL(path + ["production_url"], default: "https://api.push.apple.com"),
      sandboxURL: reader.providerURL(path + ["sandbox_url"], default: "https://api.sandbox.push.apple.com"),
      connections: reader.integer(path + ["connections"], in: 1...64, default: 1),
      streamsPerConnection: reader.integer(path + ["streams_per_connection"], in: 1...10_000, default: 1000),
      hedging: hedging(path, dialect, &reader))
  }

  private static func fcm(
    _ path: [String], _ dialect: Dialect, _ reader: inout ConfigurationReader
  ) -> FCM? {
    guard reader.source.has(path) else { return nil }
    return FCM(
      serviceAccountFile: reader.requiredFile(path + ["service_account_file"]),
      url: reader.providerURL(path + ["url"], default: "https://fcm.googleapis.com"),
      connections: reader.integer(path + ["connections"], in: 1...64, default: 4),
      streamsPerConnection: reader.integer(path + ["streams_per_connection"], in: 1...10_000, default: 100),
      ratePerSecond: reader.integer(path + ["rate_per_second"], in: 1...1_000_000, default: 10_000),
      hedging: hedging(path, dialect, &reader))
  }

  private static func expo(_ path: [String], _ reader: inout ConfigurationReader) -> Expo? {
    guard reader.source.has(path) else { return nil }
    return Expo(
      url: reader.providerURL(path + ["url"], default: "https://exp.host"),
      accessTokenFile: reader.file(path + ["access_token_file"]),
      connections: reader.integer(path + ["connections"], in: 1...64, default: 6),
      ratePerSecond: reader.integer(path + ["rate_per_second"], in: 1...1_000_000, default: 600),
      receiptAfterMilliseconds: reader.milliseconds(
        path + ["receipt_after_seconds"], inSeconds: 0...86_400, default: 900_000))
  }

  private static func webhook(_ path: [String], _ reader: inout ConfigurationReader) -> Webhook? {
    guard reader.source.has(path) else { return nil }
    let (url, host) = reader.webhookURL(path + ["url"])
    let events = reader.text(path + ["events"])?.split { $0 == "," || $0.isWhitespace }.map(String.init)
    for event in events ?? [] where !Webhook.types.contains(event) {
      let near = Suggestion.text(for: event, among: Webhook.types)
      reader.note(
        path + ["events"],
        "unknown type \(event)" + (near.isEmpty ? "; must be of \(Webhook.types.joined(separator: ", "))" : near))
    }
    if events?.isEmpty == true {
      reader.note(path + ["events"], "must name at least one of \(Webhook.types.joined(separator: ", "))")
    }
    return Webhook(
      url: url, host: host, secretFile: reader.requiredFile(path + ["secret_file"]), events: events,
      timeoutMilliseconds: reader.milliseconds(path + ["timeout_seconds"], inSeconds: 1...30, default: 10_000))
  }

  private static func webPush(_ path: [String], _ reader: inout ConfigurationReader) -> WebPush? {
    guard reader.source.has(path) else { return nil }
    let subject = reader.requiredWord(path + ["subject"])
    if !subject.isEmpty, !subject.contains(where: \.isWhitespace), let flaw = WebPushCredentials.flaw(of: subject) {
      reader.note(path + ["subject"], flaw)
    }
    return WebPush(
      vapidKeyFile: reader.requiredFile(path + ["vapid_key_file"]), subject: subject,
      origins: reader.pushOrigins(path + ["origins"]),
      connections: reader.integer(path + ["connections"], in: 1...64, default: 2),
      ratePerSecond: reader.integer(path + ["rate_per_second"], in: 1...1_000_000, default: 1000))
  }

  private static func hedging(
    _ path: [String], _ dialect: Dialect, _ reader: inout ConfigurationReader
  ) -> Hedging {
    Hedging(
      afterMilliseconds: reader.milliseconds(path + ["hedge_after_seconds"], inSeconds: 0...60, default: 300),
      percentMax: reader.integer(path + ["hedged_percent_max"], in: 0...10, default: dialect.ringsTwice ? 0 : 2))
  }

  // MARK: - The file

  private static func text(_ file: String?) throws(ConfigurationError) -> String? {
    do throws(ConfigurationYAML.Fault) {
      return try file.map(ConfigurationYAML.text)
    } catch {
      let problem = ConfigurationProblem(origin: .file(line: error.line), path: "", message: error.message)
      throw ConfigurationError(file: file, problems: [problem])
    }
  }

  private static func reader(
    _ file: String?, _ environment: [String: String]
  ) throws(ConfigurationError) -> ConfigurationReader {
    let source = ConfigurationSource(yaml: try text(file), environment: environment)
    guard source.isReadable else { throw ConfigurationError(file: file, problems: source.problems) }
    return ConfigurationReader(source, folder: file.map(folder) ?? "")
  }

  private static func folder(of file: String) -> String {
    guard let slash = file.lastIndex(of: "/") else { return "" }
    return slash == file.startIndex ? "/" : String(file[..<slash])
  }
}

// The configuration: its values, which source overrides which, and every kind of error.

import SettingsTestSupport
import Dialects
import Foundation
import Logging
import Providers
import Runtime
import Testing

@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct ConfigurationTests {
  private let folder = try! ConfigurationFolder()

  static let full = """
    database: postgres://push@db/push
    http: { listen: 0.0.0.0:9000 }
    tls: { ca_file: ca.pem }
    log: { level: debug }
    shutdown: { drain_seconds: 30 }
    apps:
      porteiro:
        dialect: intercom
        locale: pt-BR
        unknown_name: Onbekend
        ring_seconds: 45
        invalidation: { dead_percent: 50, answers_min: 10, window_seconds: 60 }
        apns: { team_id: TEAM, key_id: 12345, key_file: key.p8, topic: com.example.app,
                production_url: "https://127.0.0.1:2197", sandbox_url: "https://[::1]:2198/", connections: 2,
                hedge_after_seconds: 0.45 }
        fcm:  { service_account_file: account.json, url: "https://fcm.example:444", streams_per_connection: 50,
                hedged_percent_max: 0 }
        expo: { url: https://expo.example, access_token_file: token, receipt_after_seconds: 0.25 }
    """

  static let minimal = """
    database: postgresql://db/push
    apps:
      a:
        expo:
    """

  @Test func `every key is read, and paths are relative to the configuration file`() throws {
    let configuration = try folder.load(Self.full)
    #expect(configuration.databases[0].url == "postgres://push@db/push")
    #expect(configuration.http == .init(host: "0.0.0.0", port: 9000))
    #expect(configuration.caFile == folder.path + "/ca.pem")
    #expect(configuration.logLevel == .debug)
    #expect(configuration.drainSeconds == 30)
    let app = try #require(configuration.apps.first)
    #expect(app.name == "porteiro" && app.dialect.name == "intercom" && app.ringSeconds == 45)
    #expect(app.providers == [.apns, .fcm, .expo])
    #expect(
      app.apns
        == .init(
          teamID: "TEAM", keyID: "12345", keyFile: folder.path + "/key.p8", topic: "com.example.app",
          productionURL: .init(host: "127.0.0.1", port: 2197), sandboxURL: .init(host: "::1", port: 2198),
          connections: 2, streamsPerConnection: 1000, hedging: .init(afterMilliseconds: 450, percentMax: 2)))
    #expect(app.fcm?.hedging == .init(afterMilliseconds: 300, percentMax: 0))
    #expect(app.fcm?.url == .init(host: "fcm.example", port: 444))
    #expect(app.fcm?.streamsPerConnection == 50)
    #expect(app.expo?.url == .init(host: "expo.example", port: 443))
    #expect(app.expo?.accessTokenFile == folder.path + "/token")
    #expect(app.apns?.sandboxURL.description == "https://[::1]:2198")
    #expect(app.locale == "pt-BR" && app.unknownName == "Onbekend")
    #expect(app.invalidation == .init(deadPercent: 50, answersMin: 10, windowSeconds: 60))
    #expect(app.expo?.receiptAfterMilliseconds == 250)
  }

  @Test func `omitted keys have the documented defaults`() throws {
    let configuration = try folder.load(
      """
      database: postgresql://db/push
      apps:
        b: { apns: { team_id: T, key_id: K, key_file: key.p8, topic: t }, fcm: { service_account_file: account.json } }
        a: { expo: }
      """)
    #expect(configuration.apps.map(\.name) == ["a", "b"])
    #expect(configuration.http == .init(host: "127.0.0.1", port: 8080))
    #expect(configuration.caFile == nil)
    #expect(configuration.logLevel == .info)
    #expect(configuration.drainSeconds == 10)
    let (a, b) = (configuration.apps[0], configuration.apps[1])
    #expect(a.dialect.name == "intercom" && a.ringSeconds == 60 && a.providers == [.expo])
    #expect(a.expo?.url.description == "https://exp.host")
    #expect(a.expo?.receiptAfterMilliseconds == 900_000)
    #expect(a.locale == nil && a.unknownName == nil)
    #expect(a.invalidation == .init(deadPercent: 20, answersMin: 200, windowSeconds: 300))
    #expect(b.apns?.productionURL.description == "https://api.push.apple.com")
    #expect(b.apns?.sandboxURL.description == "https://api.sandbox.push.apple.com")
    #expect(b.fcm?.url.description == "https://fcm.googleapis.com")
  }

  @Test func `the environment overrides the file, and DATABASE_URL overrides both`() throws {
    let environment = [
      "PUSH_GATEWAY_DATABASE": "postgres://from-environment/x", "PUSH_GATEWAY_HTTP_LISTEN": "[::]:1",
      "PUSH_GATEWAY_APPS_PORTEIRO_RING_SECONDS": "5",
      "PUSH_GATEWAY_APPS_PORTEIRO_APNS_KEY_FILE": folder.path + "/token",
      "PUSH_GATEWAY_LOG_LEVEL": "", "PUSH_GATEWAY_CONFIG": "elsewhere",
    ]
    var configuration = try folder.load(Self.full, environment)
    #expect(configuration.databases[0].url == "postgres://from-environment/x")
    #expect(configuration.http == .init(host: "::", port: 1))
    #expect(configuration.logLevel == .debug)
    #expect(configuration.apps[0].ringSeconds == 5)
    #expect(configuration.apps[0].apns?.keyFile == folder.path + "/token")
    configuration = try folder.load(Self.full, environment.merging(["DATABASE_URL": "postgres://above/all"]) { $1 })
    #expect(configuration.databases[0].url == "postgres://above/all")
  }

  @Test func `a whole configuration can come from the environment`() throws {
    let configuration = try GatewayConfiguration.load(
      file: nil,
      environment: [
        "DATABASE_URL": "postgres://db/push", "PUSH_GATEWAY_APPS_MY_APP_EXPO_URL": "https://exp.host",
        "PUSH_GATEWAY_APPS_MY_APP_DIALECT": "twilio",
      ])
    #expect(configuration.apps.map(\.name) == ["my_app"])
    #expect(configuration.apps[0].dialect.name == "twilio")
  }

  @Test func `an app's name keeps the spelling of the file`() throws {
    let yaml = "database: postgres://db/x\napps: { My-App.2: { expo: } }"
    let configuration = try folder.load(yaml, ["PUSH_GATEWAY_APPS_MY_APP_2_RING_SECONDS": "7"])
    #expect(configuration.apps.map(\.name) == ["My-App.2"])
    #expect(configuration.apps[0].ringSeconds == 7)
  }

  @Test func `variables that Kubernetes sets for a Service named push-gateway are ignored`() throws {
    let kubernetes = [
      "PUSH_GATEWAY_SERVICE_HOST": "10.0.0.1", "PUSH_GATEWAY_SERVICE_PORT": "8080",
      "PUSH_GATEWAY_PORT": "tcp://10.0.0.1:8080",
      "PUSH_GATEWAY_PORT_8080_TCP_ADDR": "10.0.0.1",
    ]
    #expect(try folder.message(Self.minimal, kubernetes) == "")
  }

  @Test(arguments: [
    "postgres://u:pa@ss-word@db/push", "postgres://u:pass/word@db/push", "postgres://u:123/word@db/push",
    "postgres://u:pa%zz@db/push",
    "postgres://u:password@db:port/push", "postgres://u:pass word@db/push", "postgres://db/push?passwrd=word",
    "postgres://u:pass?word@db/push", "postgres://u:pass#word@db#/push", "postgres://u:word@d$b/push",
    "postgres://word:70000/push",
  ])
  func `a mistyped database URL is refused, and the error quotes nothing of it`(url: String) throws {
    for yaml in ["database: '\(url)'\napps: { a: { expo: } }", "apps: { a: { expo: } }"] {
      let isInFile = yaml.hasPrefix("database")
      let message = try folder.message(yaml, isInFile ? [:] : ["DATABASE_URL": url])
      #expect(message.contains(isInFile ? "database: " : "DATABASE_URL"))
      for piece in ["word", "pass", "ss", "zz", "123", "70000"] {
        #expect(!message.replacing("PASSWORD", with: "").replacing("did you mean password?", with: "").contains(piece))
      }
    }
  }

  @Test(arguments: [
    "postgres://push@db/push", "postgres://u:p%40ss@db-1.example:5432,db_2:/push?sslmode=require", "postgresql:///push",
    "postgres://u@[::1]:5433/push", "postgres://%2Frun%2Fpostgresql/push", "postgres://u:p@/push?host=/run/postgresql",
    "postgres://u:p:q@127.0.0.1/push", "postgresql://db?connect_timeout=2",
  ])
  func `a database URL that libpq understands is accepted`(url: String) throws {
    #expect(try GatewayConfiguration.loadDatabases(file: nil, environment: ["DATABASE_URL": url]).map(\.url) == [url])
  }

  @Test func `the database alone can be read from a file whose apps are wrong, but not from nothing`() throws {
    #expect(
      try GatewayConfiguration.loadDatabases(file: nil, environment: ["DATABASE_URL": "postgres://a/b"]).map(\.url)
        == ["postgres://a/b"])
    try folder.write("database: postgres://c/d\napps: { x: { apns: { key_file: missing } } }", to: "gateway.yaml")
    let databases = try GatewayConfiguration.loadDatabases(file: folder.path + "/gateway.yaml", environment: [:])
    #expect(databases == [.init(url: "postgres://c/d")])
    #expect(throws: ConfigurationError.self) { try GatewayConfiguration.loadDatabases(file: nil, environment: [:]) }
  }

  @Test(
    arguments: [
      ("gateway.yaml", nil), ("none.yaml", "there is no such file"), ("", "is a directory, not a file"),
      ("~/none.yaml", "there is no such file; ~ was not expanded, write the absolute path"),
    ] as [(String, String?)])
  func `with DATABASE_URL, a file that must be readable is read, and another one is not`(name: String, fault: String?)
    throws
  {
    try folder.write("database: postgres://c/d\n", to: "gateway.yaml")
    let file = name.hasPrefix("~") ? name : "\(folder.path)/\(name)"
    let environment = ["DATABASE_URL": "postgres://a/b"]
    let read = { (mustBeReadable: Bool) in
      try GatewayConfiguration.loadDatabases(
        file: file, mustBeReadable: mustBeReadable, environment: environment
      ).map(\.url)
    }
    #expect(try read(false) == ["postgres://a/b"])
    guard let fault else {
      #expect(try read(true) == ["postgres://a/b"])
      return
    }
    let error = #expect(throws: ConfigurationError.self) { try read(true) }
    #expect(error?.description == "\(file): \(fault)")
  }

  @Test(arguments: [("intercom", 2), ("telnyx", 2), ("twilio", 0), ("enclosure", 0), ("commeazy", 0)])
  func `invites are hedged by default for dialects whose phones show one call for two pushes`(
    dialect: String, percent: Int
  ) throws {
    let apns = "{ team_id: T, key_id: K, key_file: key.p8, topic: com.example }"
    let loaded = try folder.load("database: postgres://db/x\napps: { a: { dialect: \(dialect), apns: \(apns) } }\n")
    #expect(loaded.apps.first?.apns?.hedging.percentMax == percent)
  }

  @Test func `Telnyx's phones get a cancel over VoIP only if the app's configuration says so`() throws {
    let apns = "apns: { team_id: T, key_id: K, key_file: key.p8, topic: com.example }"
    for (setting, isOn) in [("", false), (", voip_cancel: false", false), (", voip_cancel: true", true)] {
      let loaded = try folder.load("database: postgres://db/x\napps: { a: { dialect: telnyx, \(apns)\(setting) } }\n")
      #expect(loaded.apps.first?.hasVoIPCancel == isOn)
    }
    let template = "templates: { apns: { cancel: { $push: { type: voip }, end: \"${callId}\" } } }"
    let own = try folder.load("database: postgres://db/x\napps: { a: { \(apns), voip_cancel: true, \(template) } }\n")
    #expect(own.apps.first?.hasVoIPCancel == true)
  }

  @Test func `a message's text is sent, and missed calls have a channel, only if the configuration says so`() throws {
    for (settings, sends, channel) in [
      ("", false, nil), (", message_text: false", false, nil),
      (", message_text: true, missed_call_channel: missed", true, "missed"),
    ] as [(String, Bool, String?)] {
      let loaded = try folder.load("database: postgres://db/x\napps: { a: { expo: {}\(settings) } }\n")
      #expect(loaded.apps.first?.sendsMessageText == sends && loaded.apps.first?.missedCallChannel == channel)
    }
    // A template of its own may show the text in any dialect.
    let template = "templates: { fcm: { message: { shown: \"${messageText|newMessageText}\" } } }"
    let app = "dialect: commeazy, fcm: { service_account_file: account.json }, message_text: true, \(template)"
    let own = try folder.load("database: postgres://db/x\napps: { a: { \(app) } }\n")
    #expect(own.apps.first?.sendsMessageText == true)
  }

  @Test func `an app has no quota unless the configuration gives it one`() throws {
    let head = "database: postgres://db/x\napps: { a: { expo: {} }, b: { expo: {}, quota: { "
    let loaded = try folder.load(head + "calls_per_minute: 600, recipients_per_minute: 0 } } }\n")
    #expect(loaded.apps.first?.quota == .init())
    #expect(
      loaded.apps.last?.quota == .init(callsPerMinute: 600, notificationsPerMinute: nil, recipientsPerMinute: 0))
    let variable = try folder.load(
      head + "calls_per_minute: 600 } } }\n", ["PUSH_GATEWAY_APPS_B_QUOTA_NOTIFICATIONS_PER_MINUTE": "7"])
    #expect(variable.apps.last?.quota == .init(callsPerMinute: 600, notificationsPerMinute: 7))
  }

  @Test func `TLS of the listeners is read with its files, and is off by default`() throws {
    for name in ["server.pem", "server.key", "clients.pem"] { try folder.write("x", to: name) }
    let pair = "certificate_file: server.pem, key_file: server.key"
    let head = "database: postgres://db/x\napps: { a: { expo: } }\n"
    var loaded = try folder.load(head + "api: { enabled: true }")
    #expect(loaded.httpTLS == nil && loaded.api?.tls == nil && loaded.secretPrivacy == .required)
    loaded = try folder.load(
      head + "http: { tls: { \(pair) } }\napi: { enabled: true, tls: { \(pair), client_ca_file: clients.pem } }")
    let (certificate, key) = (folder.path + "/server.pem", folder.path + "/server.key")
    #expect(loaded.httpTLS == .init(certificateFile: certificate, keyFile: key))
    #expect(
      loaded.api?.tls
        == .init(
          certificateFile: certificate, keyFile: key, clientCAFile: folder.path + "/clients.pem",
          clientCertificates: .required))
    loaded = try folder.load(
      head + "api: { enabled: true, tls: { \(pair), client_ca_file: clients.pem, client_certificates: optional } }\n"
        + "security: { allow_readable_secrets: true }")
    #expect(loaded.api?.tls?.clientCertificates == .optional && loaded.secretPrivacy == .waived)
  }

  @Test func `a file with the database's password is a secret; one without, or a URL from the environment, is not`()
    throws
  {
    let (with, without) = ("postgres://u:p@db/x", "postgres://u@db/x")
    func message(
      _ url: String, _ more: String = "", _ environment: [String: String] = [:], mode: Int
    ) throws -> String {
      try folder.message("database: \(url)\napps: { a: { expo: } }\n\(more)", environment, mode: mode)
    }
    let refused =
      "gateway.yaml:1: database: contains a password. gateway.yaml: its mode 0644 lets every user of this machine read"
    #expect(try message(with, mode: 0o644).hasPrefix(refused))
    #expect(try message("postgres://u@db/x?password=p", mode: 0o644).hasPrefix(refused))
    // The file contains the password even if DATABASE_URL overrides it.
    #expect(try message(with, "", ["DATABASE_URL": without], mode: 0o644).hasPrefix(refused))
    #expect(try message(with, "", ["PUSH_GATEWAY_DATABASE": without], mode: 0o644).hasPrefix(refused))
    #expect(try message(with, mode: 0o640) == "")
    #expect(try message(without, mode: 0o644) == "")
    #expect(try message(without, "", ["DATABASE_URL": with], mode: 0o644) == "")
    #expect(try message(with, "security: { allow_readable_secrets: true }", mode: 0o644) == "")
    try folder.write("database: \(with)", to: "gateway.yaml", mode: 0o644)
    #expect(throws: ConfigurationError.self) {
      try GatewayConfiguration.loadDatabases(file: folder.path + "/gateway.yaml", environment: [:])
    }
  }

  // MARK: Faults

  private static func with(_ line: String) -> String { "\(minimal)\n\(line)" }
  private static func app(_ text: String) -> String { "database: postgres://db/x\napps:\n  a:\n    \(text)\n" }

  private static let home = FileManager.default.homeDirectoryForCurrentUser.path

  private static let faults: [(yaml: String, message: String)] = [
    // Unknown keys.
    (with("databse: postgres://db/x"), "gateway.yaml:5: databse: unknown key; did you mean database?"),
    (with("htp: { listen: x }"), "gateway.yaml:5: htp: unknown key; did you mean http?"),
    (
      app("expo: {}\n    rings: 5"),
      "gateway.yaml:5: apps.a.rings: unknown key; known keys: dialect, templates, templates_file, locale, unknown_name, ring_seconds, escalate_after_seconds, at_least_once, missed_calls, missed_call_channel, voip_cancel, message_text, quota, proxy, apns, fcm, expo, webpush, webhook, matrix, invalidation"
    ),
    (
      app("expo: {}\n    escalate_after_seconds: 60"),
      "gateway.yaml:5: apps.a.escalate_after_seconds: must be less than ring_seconds (60), otherwise no call would ring long enough"
    ),
    (
      app("expo: { token_file: x }"),
      "gateway.yaml:4: apps.a.expo.token_file: unknown key; known keys: url, access_token_file, connections, rate_per_second, receipt_after_seconds"
    ),
    (
      app("expo: { acces_token_file: x }"),
      "gateway.yaml:4: apps.a.expo.acces_token_file: unknown key; did you mean access_token_file?"
    ),
    (
      app("webpush: { vapid_key_file: key.p8, subject: ops@example.com }"),
      "gateway.yaml:4: apps.a.webpush.subject: must be mailto:ADDRESS or an https:// page, by which the operators of a push service can reach you"
    ),
    (
      app("webpush: { vapid_key_file: key.p8, subject: 'mailto:ops@localhost' }"),
      "gateway.yaml:4: apps.a.webpush.subject: must name a domain of the Internet, because push services refuse contacts that they cannot reach"
    ),
    (
      app("webpush: { vapid_key_file: key.p8, subject: 'mailto:ops@example.com', origins: '*.com' }"),
      "gateway.yaml:4: apps.a.webpush.origins: *.com: would allow a whole top-level domain; name the domain of the push service"
    ),
    (
      app("webpush: { subject: 'mailto:ops@example.com' }\n    dialect: telnyx"),
      "gateway.yaml:4: apps.a.webpush.vapid_key_file: is missing; it may also be given as PUSH_GATEWAY_APPS_A_WEBPUSH_VAPID_KEY_FILE\n"
        + "gateway.yaml:4: apps.a.webpush: the dialect telnyx does not support calls over webpush"
    ),
    // Missing keys.
    ("apps: { a: { expo: } }", "gateway.yaml: database: is missing; it may also be given as DATABASE_URL"),
    ("database: postgres://db/x", "gateway.yaml: apps: must contain at least one app"),
    ("database: postgres://db/x\napps:", "gateway.yaml:2: apps: must contain at least one app"),
    (
      "database: postgres://db/x\napps:\n  a:",
      "gateway.yaml:3: apps.a: must contain at least one of apns, fcm, expo and webpush"
    ),
    (
      app("apns: { key_id: K, key_file: key.p8, topic: t }"),
      "gateway.yaml:4: apps.a.apns.team_id: is missing; it may also be given as PUSH_GATEWAY_APPS_A_APNS_TEAM_ID"
    ),
    (
      app("fcm:"),
      "gateway.yaml:4: apps.a.fcm.service_account_file: is missing; it may also be given as PUSH_GATEWAY_APPS_A_FCM_SERVICE_ACCOUNT_FILE"
    ),
    (
      "database:\napps: { a: { expo: } }",
      "gateway.yaml:1: database: has no value\ngateway.yaml: database: is missing; it may also be given as DATABASE_URL"
    ),
    // Wrong types.
    ("- a", "gateway.yaml:1: must be a mapping of keys, such as database: or apps:"),
    (
      app("expo: [1]"),
      "gateway.yaml:4: apps.a.expo: must be a section with keys below it: url, access_token_file, connections, rate_per_second, receipt_after_seconds"
    ),
    (app("expo: {}\n    dialect: { a: b }"), "gateway.yaml:5: apps.a.dialect: must be a single value, not a section"),
    (
      app("expo: {}\n    ring_seconds: [60]"), "gateway.yaml:5: apps.a.ring_seconds: must be a single value, not a list"
    ),
    (
      app("expo: {}\n    missed_calls: some"),
      "gateway.yaml:5: apps.a.missed_calls: unknown value some; must be one of off, newest, all"
    ),
    (
      app("fcm: { service_account_file: account.json }\n    dialect: commeazy\n    message_text: true"),
      "gateway.yaml:6: apps.a.message_text: the dialect commeazy never shows the text of a message: remove message_text, or add a template with ${messageText|newMessageText}"
    ),
    (
      app("fcm: { service_account_file: account.json }\n    dialect: telnyx\n    missed_call_channel: x"),
      "gateway.yaml:6: apps.a.missed_call_channel: the app of the dialect telnyx chooses the channel itself: remove missed_call_channel, or add a template with ${missedCallChannel|'default'}"
    ),
    (
      app("expo: {}\n    voip_cancel: true"),
      "gateway.yaml:5: apps.a.voip_cancel: the dialect intercom has no cancel over APNs, so a cancel would make its phones ring: remove voip_cancel, or add the template apns.cancel"
    ),
    (
      app("fcm: { service_account_file: account.json }\n    dialect: telnyx\n    voip_cancel: true"),
      "gateway.yaml:6: apps.a.voip_cancel: needs the section apns, which the app does not have"
    ),
    (
      app("expo: {}\n    templates: { apns: { cancel: { $push: { type: voip }, end: \"${callId}\" } } }"),
      "gateway.yaml:3: apps.a: the template apns.cancel is used only with voip_cancel: true, which states that the app's phones understand it"
    ),
    (
      app("expo: {}\n    templates: { apns: { cancel: { $push: { type: background }, end: \"${callId}\" } } }"),
      "gateway.yaml:5: apps.a.templates.apns.cancel: there is no cancel over APNs: every VoIP push must report a call, so none can end one; for phones that treat a VoIP push as the end of a call, set $push: {type: voip}, and voip_cancel: true in the app's settings\ngateway.yaml:5: apps.a.templates.apns.cancel.$push.type: must be voip: otherwise an iPhone neither rings nor stops"
    ),
    (
      app("expo: {}\n    quota: { calls_per_minute: many }"),
      "gateway.yaml:5: apps.a.quota.calls_per_minute: must be a whole number from 0 to 1000000"
    ),
    (
      app("expo: {}\n    quota: { recipients_per_minute: 1000001 }"),
      "gateway.yaml:5: apps.a.quota.recipients_per_minute: is 1000001, but must be from 0 to 1000000"
    ),
    (
      app("expo: {}\n    ring_seconds: sixty"),
      "gateway.yaml:5: apps.a.ring_seconds: must be a whole number from 1 to 600"
    ),
    (
      app("expo: {}\n    ring_seconds: 1.5"),
      "gateway.yaml:5: apps.a.ring_seconds: must be a whole number from 1 to 600"
    ),
    (app("expo: {}\n    ring_seconds: 0"), "gateway.yaml:5: apps.a.ring_seconds: is 0, but must be from 1 to 600"),
    (app("expo: {}\n    ring_seconds: 601"), "gateway.yaml:5: apps.a.ring_seconds: is 601, but must be from 1 to 600"),
    (with("log: { level: debg }"), "gateway.yaml:5: log.level: unknown value debg; did you mean debug?"),
    (
      app("expo: {}\n    dialect: intercon"),
      "gateway.yaml:5: apps.a.dialect: unknown value intercon; did you mean intercom?"
    ),
    (
      app("expo: { receipt_after_seconds: 86400.5 }"),
      "gateway.yaml:4: apps.a.expo.receipt_after_seconds: must be a number of seconds from 0 to 86400"
    ),
    (
      app("expo: { receipt_after_seconds: nan }"),
      "gateway.yaml:4: apps.a.expo.receipt_after_seconds: must be a number of seconds from 0 to 86400"
    ),
    (
      app("expo: {}\n    invalidation: { dead_percent: 0 }"),
      "gateway.yaml:5: apps.a.invalidation.dead_percent: is 0, but must be from 1 to 100"
    ),
    (
      app("expo: {}\n    invalidation: { answers_min: 1000001 }"),
      "gateway.yaml:5: apps.a.invalidation.answers_min: is 1000001, but must be from 1 to 1000000"
    ),
    (
      app("expo: {}\n    invalidation: { window_seconds: 86401 }"),
      "gateway.yaml:5: apps.a.invalidation.window_seconds: is 86401, but must be from 1 to 86400"
    ),
    (
      app("expo: {}\n    locale: ja-JP"),
      "gateway.yaml:5: apps.a.locale: must be in one of the supported languages: nl, en, de, fr, es, it, pt, pt-BR, no, sv, da, pl, tr"
    ),
    (
      app("expo: {}\n    unknown_name: \" \""),
      "gateway.yaml:5: apps.a.unknown_name: must be a name of at most 100 bytes"
    ),
    (
      app("expo: {}\n    dialect: telnyx"),
      "gateway.yaml:4: apps.a.expo: the dialect telnyx does not support calls over expo"
    ),
    (
      "database: postgres://db/x\napps: { -a: { expo: } }",
      "gateway.yaml:2: apps.-a: the name of an app must begin with a letter or digit and have at most 64 letters, digits, dots, dashes and underscores"
    ),
    // Addresses.
    (
      "database: mysql://x\napps: { a: { expo: } }",
      "gateway.yaml:1: database: must be a URL that begins with postgres:// or postgresql://"
    ),
    (
      app("expo: { url: \"http://exp.host\" }"),
      "gateway.yaml:4: apps.a.expo.url: must begin with https://, because tokens and keys must not be sent in clear text"
    ),
    (app("expo: { url: exp.host }"), "gateway.yaml:4: apps.a.expo.url: must be a URL such as https://exp.host"),
    (
      app("expo: { url: \"https://exp.host/--/api\" }"),
      "gateway.yaml:4: apps.a.expo.url: must end after host and port, like https://exp.host: the gateway appends the path"
    ),
    (
      app("expo: { url: \"https://u:p@exp.host\" }"),
      "gateway.yaml:4: apps.a.expo.url: must not contain a user name or password"
    ),
    (
      app("expo: { url: \"https://exp.host:0\" }"),
      "gateway.yaml:4: apps.a.expo.url: has no valid host and port (1 to 65535); it must look like https://exp.host"
    ),
    (
      app("expo: { url: \"https://exp.host:65536\" }"),
      "gateway.yaml:4: apps.a.expo.url: has no valid host and port (1 to 65535); it must look like https://exp.host"
    ),
    (
      app("expo: { url: \"https://[::1\" }"),
      "gateway.yaml:4: apps.a.expo.url: has no valid host and port (1 to 65535); it must look like https://exp.host"
    ),
    (
      app("expo: { url: \"https://\" }"),
      "gateway.yaml:4: apps.a.expo.url: has no valid host and port (1 to 65535); it must look like https://exp.host"
    ),
    (
      with("http: { listen: \"127.0.0.1\" }"),
      "gateway.yaml:5: http.listen: must be host:port with a port from 0 to 65535, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080"
    ),
    (
      with("http: { listen: \":8080\" }"),
      "gateway.yaml:5: http.listen: must be host:port with a port from 0 to 65535, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080"
    ),
    (
      with("http: { listen: \"h:99999\" }"),
      "gateway.yaml:5: http.listen: must be host:port with a port from 0 to 65535, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080"
    ),
    // Files.
    (
      with("tls: { ca_file: no.pem }"),
      "gateway.yaml:5: tls.ca_file: cannot read the file no.pem: No such file or directory"
    ),
    (with("tls: { ca_file: . }"), "gateway.yaml:5: tls.ca_file: . is a directory, not a file"),
    (
      with("tls: { ca_file: ~/keys/ca.pem }"),
      "gateway.yaml:5: tls.ca_file: ~ is not expanded here: write the absolute path, such as \(home)/keys/ca.pem"
    ),
    (
      with("tls: { ca_file: $HOME/ca.pem }"),
      "gateway.yaml:5: tls.ca_file: $HOME is not expanded here: write the absolute path, such as \(home)/ca.pem"
    ),
    (
      app("apns: { team_id: T, key_id: K, key_file: \"${HOME}/key.p8\", topic: t }"),
      "gateway.yaml:4: apps.a.apns.key_file: ${HOME} is not expanded here: write the absolute path, such as \(home)/key.p8"
    ),
    (
      with("tls: { ca_file: \"/etc/${NAME}/ca.pem\" }"),
      "gateway.yaml:5: tls.ca_file: variables are not expanded here: write the absolute path"
    ),
    (
      with("dashboard: { ops_key_file: \"~/a secret\" }"),
      "gateway.yaml:5: dashboard.ops_key_file: cannot read the file with this name (not shown, because it may be the secret itself): No such file or directory"
    ),
    (
      with("dashboard: { ops_key_file: 0123456789abcdef0123456789abcdef }"),
      "gateway.yaml:5: dashboard.ops_key_file: cannot read the file with this name (not shown, because it may be the secret itself): No such file or directory"
    ),
    (
      app("apns: { team_id: T, key_id: K, key_file: \"-----BEGIN PRIVATE KEY-----\\nMIGH/x.y\", topic: t }"),
      "gateway.yaml:4: apps.a.apns.key_file: cannot read the file with this name (not shown, because it may be the secret itself): No such file or directory"
    ),
    (
      app("apns: { team_id: \"\", key_id: \"a b\", key_file: key.p8, topic: t.voip }"),
      "gateway.yaml:4: apps.a.apns.topic: must be the bundle id without .voip, which is appended for VoIP pushes\ngateway.yaml:4: apps.a.apns.team_id: must be one word without spaces\ngateway.yaml:4: apps.a.apns.key_id: must be one word without spaces"
    ),
    (
      with("http: { tls: { key_file: key.p8 } }"),
      "gateway.yaml:5: http.tls.certificate_file: is missing; it may also be given as PUSH_GATEWAY_HTTP_TLS_CERTIFICATE_FILE"
    ),
    (
      with("api: { tls: { certificate_file: ca.pem, key_file: key.p8, client_certificates: optional } }"),
      "gateway.yaml:5: api.tls.client_certificates: needs client_ca_file, the authorities that issue the accepted certificates"
    ),
    (
      with("http: { tls: { certificate_file: ca.pem, key_file: key.p8, client_ca_file: ca.pem } }"),
      "gateway.yaml:5: http.tls.client_ca_file: unknown key; known keys: certificate_file, key_file"
    ),
    (
      with("security: { allow_readable_secrets: yes }"),
      "gateway.yaml:5: security.allow_readable_secrets: unknown value yes; must be one of true, false"
    ),
    // Invalid YAML.
    ("apps:\n\ta:", "gateway.yaml:2: is not YAML: has a tab; indent with blanks"),
    ("apps:\n  a:\n    \texpo:", "gateway.yaml:3: is not YAML: has a tab; indent with blanks"),
    (
      "apps:\n  a:\n    locale: @en",
      "gateway.yaml:3: is not YAML: a value that begins with @, ` or % must be in quotes"
    ),
    (
      "apps:\n  a:\n    apns:\n      team_id: T\n     key_id: K",
      "gateway.yaml:5: is not YAML: is indented by 5 blanks, as no line above it is"
    ),
    (
      "apps:\n  a:\n    locale: en\n      expo: {}",
      "gateway.yaml:4: is not YAML: is indented deeper than line 3, which has a value already"
    ),
    (
      "apps:\n  a:\n    locale:en\n    expo: {}",
      "gateway.yaml:3: is not YAML: the colon after a key needs a blank behind it"
    ),
    (
      "apps:\n  a:\n    unknown_name: Gate: north",
      "gateway.yaml:3: is not YAML: a value with a colon and a blank in it must be in quotes"
    ),
    ("database: postgres://db/push\napps:\na:\n  expo:", "gateway.yaml:3: apps.a: must be indented deeper than apps"),
    (
      "database: postgres://db/push\napps:\n  a:\n  expo:\n    url: https://exp.host",
      "gateway.yaml:4: apps.a.expo: must be indented deeper than a"
    ),
    ("database: postgres://db/push\napp:\n  a: { expo: }", "gateway.yaml:2: app: unknown key; did you mean apps?"),
    ("a: [", "gateway.yaml:2: is not YAML: did not find expected node content"),
    (
      "database: a\ndatabase: b",
      "gateway.yaml:1: is not YAML: the key database appears twice in the section that begins here"
    ),
  ]

  @Test(arguments: faults)
  func `a fault is reported with its line, its key and the remedy`(yaml: String, expected: String) throws {
    #expect(try folder.message(yaml) == expected)
  }

  @Test func `several faults are reported at once, in the order of the file`() throws {
    let message = try folder.message("http: { listen: x }\nfoo: 1\napps: { a: { expo: { url: y } } }")
    #expect(
      message.split(separator: "\n").map { $0.prefix(15) } == [
        "gateway.yaml:1:", "gateway.yaml:2:", "gateway.yaml:3:", "gateway.yaml: d",
      ])
  }

  @Test(arguments: [
    (
      ["PUSH_GATEWAY_HTP_LISTEN": "x"],
      "environment variable PUSH_GATEWAY_HTP_LISTEN: does not match any key; did you mean PUSH_GATEWAY_HTTP_LISTEN?"
    ),
    (
      ["PUSH_GATEWAY_APPS_A_EXPO_ULR": "x"],
      "environment variable PUSH_GATEWAY_APPS_A_EXPO_ULR: does not match any key; did you mean PUSH_GATEWAY_APPS_A_EXPO_URL?"
    ),
    (
      ["PUSH_GATEWAY_XYZZY": "x"],
      "environment variable PUSH_GATEWAY_XYZZY: does not match any key; push-gateway check-config --help lists the keys"
    ),
    (
      ["DATABASE_URL": "db"],
      "environment variable DATABASE_URL: database: must be a URL that begins with postgres:// or postgresql://"
    ),
    (
      ["PUSH_GATEWAY_APPS_A_RING_SECONDS": "many"],
      "environment variable PUSH_GATEWAY_APPS_A_RING_SECONDS: apps.a.ring_seconds: must be a whole number from 1 to 600"
    ),
  ])
  func `a fault in the environment is reported with its variable`(environment: [String: String], expected: String)
    throws
  {
    #expect(try folder.message(Self.minimal, environment) == expected)
  }

  @Test func `a missing file has an error of its own`() {
    let error = #expect(throws: ConfigurationError.self) {
      try GatewayConfiguration.load(file: "/does/not/exist.yaml", environment: [:])
    }
    #expect(
      error?.description == "/does/not/exist.yaml: there is no such file")
  }

  @Test func `a file that cannot be a configuration is named by its fault`() throws {
    func message(_ bytes: [UInt8]) throws -> String {
      try Data(bytes).write(to: URL(filePath: folder.path + "/odd.yaml"))
      return #expect(throws: ConfigurationError.self) {
        try GatewayConfiguration.load(file: folder.path + "/odd.yaml", environment: [:])
      }?.description.replacing(folder.path + "/", with: "") ?? ""
    }
    let text = Self.minimal + "\n"
    #expect(
      try message(Array((text + "# caf").utf8) + [0xE9, 0x0A])
        == "odd.yaml:5: is not UTF-8, perhaps Latin-1: save the file as UTF-8")
    let wide: [UInt8] = [0xFF, 0xFE] + text.utf16.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] as [UInt8] }
    #expect(try message(wide) == "odd.yaml: is not UTF-8, but UTF-16 or binary: save it as UTF-8")
    let error = #expect(throws: ConfigurationError.self) {
      try GatewayConfiguration.load(file: folder.path, environment: [:])
    }
    #expect(error?.description == "\(folder.path): is a directory, not a file")
    #expect(throws: Never.self) { try folder.load("\u{FEFF}" + Self.minimal) }
  }

  @Test func `without a file and without variables, the file is asked for`() {
    let error = #expect(throws: ConfigurationError.self) { try GatewayConfiguration.load(file: nil, environment: [:]) }
    #expect(
      error?.description
        == "configuration: no file was named, and no variable names an app: give --config FILE, or set PUSH_GATEWAY_CONFIG"
    )
  }

  @Test func `a value that is missing beside a variable is asked for there`() throws {
    let variable = "PUSH_GATEWAY_APPS_B_WEBPUSH_SUBJECT"
    #expect(
      try folder.message(Self.minimal, [variable: "mailto:a@example.com"])
        == "environment variable \(variable): apps.b.webpush.vapid_key_file: is missing; it may also be given as "
        + "PUSH_GATEWAY_APPS_B_WEBPUSH_VAPID_KEY_FILE")
  }

  @Test func `the origin of a key is its line or its variable`() throws {
    let path = folder.path + "/origin.yaml"
    try Self.minimal.write(toFile: path, atomically: true, encoding: .utf8)
    let file = ConfigurationFile(path: path, environment: ["PUSH_GATEWAY_LOG_LEVEL": "debug"])
    #expect(file.origin(of: "database") == .file(line: 1))
    #expect(file.origin(of: "log.level") == .environment(variable: "PUSH_GATEWAY_LOG_LEVEL"))
    #expect(file.origin(of: "tls.ca_file") == .file(line: nil))
  }

  @Test(
    arguments: [
      (
        "postgres://db/push?sslmod=require",
        "has a parameter behind ? that Postgres does not know; did you mean sslmode?"
      ),
      ("postgres://db/push?schema=public", "has a parameter behind ? that Postgres does not know; remove it"),
      ("postgres://push@db:99999/push", "has a port that is not a number from 1 to 65535"),
      ("postgres://db:0/push", "has a port that is not a number from 1 to 65535"),
      (
        "postgres://db/push?sslmode=on",
        "sslmode must be one of disable, allow, prefer, require, verify-ca, verify-full"
      ),
      ("postgres://db/push?sslmode=require&connect_timeout=3", nil), ("postgres:///push?host=/run/postgresql", nil),
      ("postgres://a,b:5433/push?target_session_attrs=any", nil),
    ] as [(String, String?)])
  func `a fault in the parameters of a database URL is named`(url: String, fault: String?) {
    #expect(DatabaseURL.fault(of: url) == fault)
  }

  @Test func `configurations read twice are equal, unless a value has changed`() throws {
    let first = try folder.load(Self.full)
    #expect(try folder.load(Self.full) == first)
    #expect(try folder.load(Self.full.replacing("KEY", with: "OTHER").replacing("12345", with: "67890")) != first)
    #if os(Linux)
    let descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
    let open = descriptors.compactMap {
      try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
    }
    #expect(!open.contains { $0.hasPrefix(folder.path) })
    #endif
  }

  @Test func `no message repeats a value that may be a secret`() throws {
    let secret = "hunter2"
    let message = try folder.message("database: mysql://u:\(secret)@h/d\n", ["DATABASE_URL": "http://\(secret)"])
    #expect(!message.isEmpty && !message.contains(secret))
  }
}

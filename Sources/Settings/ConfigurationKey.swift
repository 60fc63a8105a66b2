// The list of all keys. The check for unknown keys, suggestions, environment variables and the reference in --help use
// it.

internal import Dialects

/// A key of the configuration. `*` in its path stands for the name of an app or of an ops key.
package struct ConfigurationKey: Equatable, Sendable {
  package var path: [String]
  /// One line for the reference. It ends with the default value, if there is one.
  package var summary: String
  /// Whether the value is a mapping with free names, which is passed on as a whole.
  package var isTree = false

  private init(_ path: String, _ summary: String, isTree: Bool = false) {
    self.path = path.split(separator: ".").map(String.init)
    self.summary = summary
    self.isTree = isTree
  }

  package static let all: [ConfigurationKey] = [
    ConfigurationKey("database", "postgres:// URL of the outbox; DATABASE_URL overrides it"),
    ConfigurationKey(
      "databases.*.url",
      "instead of database: postgres:// URL of one of several outboxes; NAME is shown with all that concerns it"),
    ConfigurationKey("http.listen", "host:port of health checks, metrics and dashboard; default 127.0.0.1:8080"),
    ConfigurationKey("http.connections_max", "maximum number of connections, 1 to 100000; default 128"),
    ConfigurationKey(
      "http.hosts",
      "further names of this listener besides its own and localhost, separated by commas; reading then needs a login"
    ),
    ConfigurationKey(
      "http.trusted_proxies",
      "addresses or networks of proxies whose X-Forwarded-For is trusted, separated by commas"),
    ConfigurationKey(
      "http.metrics_key_file", "file with a key of at least 32 characters that gives other machines access to /metrics"),
    ConfigurationKey("http.tls.certificate_file", "PEM chain with which http.listen speaks TLS; default: clear text"),
    ConfigurationKey("http.tls.key_file", "private key of the certificate (PEM)"),
    ConfigurationKey("api.enabled", "whether backends may enqueue calls over HTTP (openapi.yaml); default false"),
    ConfigurationKey("api.listen", "host:port of the API; default 127.0.0.1:8081"),
    ConfigurationKey("api.body_max_bytes", "largest body of a request, 1024 to 1048576; default 65536"),
    ConfigurationKey(
      "api.request_timeout_seconds",
      "time limit for a request to arrive, and for the database to answer, 1 to 300; default 10"),
    ConfigurationKey(
      "api.busy_after_seconds",
      "calls of an app are refused (503) while its oldest invite has waited longer than this, 1 to 600; default 5"),
    ConfigurationKey(
      "api.rate_per_second", "maximum number of requests a second for each key, 1 to 1000000; default 1000"),
    ConfigurationKey("api.database", "the database that the API serves, of those in databases; default the first"),
    ConfigurationKey("api.connections_max", "maximum number of connections, 1 to 100000; default 512"),
    ConfigurationKey(
      "api.trusted_proxies",
      "addresses or networks (10.0.0.0/8) of proxies whose X-Forwarded-For is trusted, separated by commas"),
    ConfigurationKey("api.tls.certificate_file", "PEM chain with which api.listen speaks TLS; default: clear text"),
    ConfigurationKey("api.tls.key_file", "private key of the certificate (PEM)"),
    ConfigurationKey(
      "api.tls.client_ca_file",
      "PEM file of certificate authorities; clients must present a certificate issued by one of them"),
    ConfigurationKey(
      "api.tls.client_certificates",
      "required or optional: with optional, a client may omit the certificate, but an invalid one is refused; default required"
    ),
    ConfigurationKey(
      "api.matrix.networks",
      "addresses or networks of homeservers that may use POST /_matrix/push/v1/notify without a key, separated by commas; default none: it is off"
    ),
    ConfigurationKey(
      "api.gorush.enabled", "whether backends may use POST /api/push of gorush, with a key of the API; default false"),
    ConfigurationKey(
      "api.gorush.networks",
      "addresses or networks that may use it without a key, for api.gorush.app, separated by commas; default none"),
    ConfigurationKey("api.gorush.app", "the app of requests without a key"),
    ConfigurationKey(
      "api.gorush.hide_tokens", "whether the answer has masked tokens, as log.hide_token of gorush; default true"),
    ConfigurationKey("dashboard.enabled", "whether / of http.listen serves the dashboard; default true"),
    ConfigurationKey(
      "dashboard.ops_key_file",
      "file with a key of at least 32 characters: its holder may read from other machines, pause lanes and end calls"
    ),
    ConfigurationKey("dashboard.ops_keys.*", "file with the key of the operator NAME, whom push.audit shows"),
    ConfigurationKey("dashboard.identity.header", "header in which an identity proxy sends its signed token (JWT)"),
    ConfigurationKey("dashboard.identity.issuer", "what iss of the token must be"),
    ConfigurationKey("dashboard.identity.audience", "what aud of the token must be or contain"),
    ConfigurationKey("dashboard.identity.jwks_file", "JWK Set with the proxy's public keys; changes need no restart"),
    ConfigurationKey("dashboard.identity.name_claim", "claim that contains the operator's name; default email"),
    ConfigurationKey(
      "dashboard.identity.allowed",
      "operators: names, or @example.com for every name with this ending, separated by commas"),
    ConfigurationKey("dashboard.hosts", "the former name of http.hosts"),
    ConfigurationKey("tls.ca_file", "PEM file of certificate authorities, added to the system's"),
    ConfigurationKey(
      "security.allow_readable_secrets",
      "whether files with secrets may be readable by every user of the machine, and have any owner; default false"),
    ConfigurationKey(
      "proxy.url",
      "http://host:port of a proxy that supports CONNECT, for all connections to providers; HTTPS_PROXY and NO_PROXY are ignored"
    ),
    ConfigurationKey(
      "proxy.credentials_file", "file with one line user:password for the proxy; changes need no restart"),
    ConfigurationKey(
      "log.level", "trace, debug, info, notice, warning, error or critical; changes need no restart; default info"),
    ConfigurationKey("log.format", "json or text; default text if standard error is a terminal, else json"),
    ConfigurationKey("shutdown.drain_seconds", "maximum time a stop waits for pushes in flight, 0 to 300; default 10"),
    ConfigurationKey(
      "apps.*.dialect",
      "format that the phone app understands: \(ShippedDialects.names.joined(separator: ", ")); default intercom"),
    ConfigurationKey(
      "apps.*.templates", "templates that override the dialect's: PROVIDER: {KIND: {…}}, see docs/dialects.md",
      isTree: true
    ),
    ConfigurationKey(
      "apps.*.templates_file", "file with such templates, YAML or JSON; apps.APP.templates overrides it"),
    ConfigurationKey(
      "apps.*.locale",
      "language of texts for devices without one of \(Language.allCases.map(\.rawValue).joined(separator: ", ")); default en"
    ),
    ConfigurationKey(
      "apps.*.unknown_name",
      "shown for callers and senders whose payload has no fromName; default: from, their id (intercom: Porteiro)"),
    ConfigurationKey("apps.*.ring_seconds", "default ring window of a call, 1 to 600; default 60"),
    ConfigurationKey(
      "apps.*.escalate_after_seconds",
      "time after which the next channel is tried for a user none of whose phones has reported that it rings, 1 to 600; default never"
    ),
    ConfigurationKey(
      "apps.*.at_least_once",
      "whether a missed call or notification is sent again when its answer was lost, so that some are shown twice; default false"
    ),
    ConfigurationKey(
      "apps.*.missed_calls",
      "phones that show a missed call: newest (of each user), all, off; default newest, but all if the backend enqueues it"
    ),
    ConfigurationKey(
      "apps.*.missed_call_channel",
      "Android's channel for missed calls, which decides about their sound; default: default over Expo, else the app's own"
    ),
    ConfigurationKey(
      "apps.*.voip_cancel",
      "whether a cancel is also sent to VoIP tokens; only for apps whose installed versions all understand it; default false"
    ),
    ConfigurationKey(
      "apps.*.message_text",
      "whether the text of a message may be in its payload, as text, is stored, and is shown; default false: it is refused"
    ),
    ConfigurationKey(
      "apps.*.quota.calls_per_minute",
      "maximum number of calls that the app may enqueue in a minute, 0 to 1000000; default no limit"),
    ConfigurationKey(
      "apps.*.quota.notifications_per_minute", "the same for messages and other notifications; default no limit"),
    ConfigurationKey(
      "apps.*.quota.recipients_per_minute",
      "the same for entries of recipients, of calls and notifications together; default no limit"),
    ConfigurationKey("apps.*.proxy.url", "a proxy for this app; none: no proxy; default proxy.url"),
    ConfigurationKey("apps.*.proxy.credentials_file", "file with one line user:password for that proxy"),
    ConfigurationKey("apps.*.apns.team_id", "Apple team id"),
    ConfigurationKey("apps.*.apns.key_id", "id of the .p8 key"),
    ConfigurationKey("apps.*.apns.key_file", "the .p8 key (ES256, PEM)"),
    ConfigurationKey("apps.*.apns.topic", "bundle id; .voip is appended for VoIP pushes"),
    ConfigurationKey("apps.*.apns.production_url", "URL; default https://api.push.apple.com"),
    ConfigurationKey("apps.*.apns.sandbox_url", "URL; default https://api.sandbox.push.apple.com"),
    ConfigurationKey("apps.*.apns.connections", "connections per environment, 1 to 64; default 1"),
    ConfigurationKey(
      "apps.*.apns.streams_per_connection",
      "maximum number of requests in flight per connection, 1 to 10000; default 1000"),
    ConfigurationKey(
      "apps.*.apns.hedge_after_seconds",
      "an invite without an answer after this time, and after the lane's recent p99.9, is sent once more over another "
        + "connection, 0 to 60, fractions allowed; default 0.3"),
    ConfigurationKey(
      "apps.*.apns.hedged_percent_max",
      "maximum share of pushes sent a second time, in percent, 0 to 10; default 2; twilio, enclosure and commeazy: 0"),
    ConfigurationKey("apps.*.fcm.service_account_file", "service account JSON; project_id and token_uri come from it"),
    ConfigurationKey("apps.*.fcm.url", "URL; default https://fcm.googleapis.com"),
    ConfigurationKey("apps.*.fcm.connections", "number of connections, 1 to 64; default 4"),
    ConfigurationKey(
      "apps.*.fcm.streams_per_connection",
      "maximum number of requests in flight per connection, 1 to 10000; default 100"),
    ConfigurationKey(
      "apps.*.fcm.rate_per_second",
      "maximum number of messages a second, 1 to 1000000; default 10000, the default quota"),
    ConfigurationKey("apps.*.fcm.hedge_after_seconds", "as for apns; default 0.3"),
    ConfigurationKey("apps.*.fcm.hedged_percent_max", "as for apns; default 2 or 0"),
    ConfigurationKey("apps.*.expo.url", "URL; default https://exp.host"),
    ConfigurationKey("apps.*.expo.access_token_file", "file with the access token, if the project requires one"),
    ConfigurationKey("apps.*.expo.connections", "requests at a time, 1 to 64; default 6"),
    ConfigurationKey(
      "apps.*.expo.rate_per_second",
      "maximum number of pushes a second, 1 to 1000000; default 600, the limit of a project"),
    ConfigurationKey(
      "apps.*.expo.receipt_after_seconds",
      "time until the receipt of a ticket is fetched, 0 to 86400, fractions allowed; default 900"
    ),
    ConfigurationKey(
      "apps.*.webpush.vapid_key_file", "the VAPID key (ES256, PEM); the web app subscribes with its public key"),
    ConfigurationKey("apps.*.webpush.subject", "mailto:ADDRESS or https:// page, for the operators of push services"),
    ConfigurationKey(
      "apps.*.webpush.origins",
      "hosts of push services, separated by commas; *.DOMAIN for all hosts below it; default those of the browsers"),
    ConfigurationKey(
      "apps.*.webpush.connections", "maximum number of connections to each push service, 1 to 64; default 2"),
    ConfigurationKey(
      "apps.*.webpush.rate_per_second", "maximum number of pushes a second, 1 to 1000000; default 1000"),
    ConfigurationKey(
      "apps.*.webhook.url",
      "https URL at which the app's backend is told of finished deliveries, calls and dead tokens (docs/webhooks.md)"),
    ConfigurationKey(
      "apps.*.webhook.secret_file",
      "file with the signing secret, whsec_…; with a second one on a line of its own while the receiver changes over"),
    ConfigurationKey(
      "apps.*.webhook.events",
      "types of events, separated by commas: \(GatewayConfiguration.Webhook.types.joined(separator: ", ")); default all"
    ),
    ConfigurationKey(
      "apps.*.webhook.timeout_seconds", "maximum time of a request, 1 to 30, fractions allowed; default 10"),
    ConfigurationKey(
      "apps.*.matrix.voip",
      "app_id of the Matrix pushers whose push keys are VoIP tokens, or its beginning and *, separated by commas"),
    ConfigurationKey("apps.*.matrix.apns", "the same for tokens of APNs alerts"),
    ConfigurationKey("apps.*.matrix.fcm", "the same for FCM registration tokens"),
    ConfigurationKey("apps.*.matrix.sandbox", "those of voip and apns whose tokens are of Apple's sandbox"),
    ConfigurationKey(
      "apps.*.invalidation.dead_percent",
      "tokens are quarantined when more than this share of a lane's answers reports dead tokens, 1 to 100; default 20"),
    ConfigurationKey(
      "apps.*.invalidation.answers_min", "minimum number of answers for that, 1 to 1000000; default 200"),
    ConfigurationKey(
      "apps.*.invalidation.window_seconds", "period over which answers are counted, 1 to 86400; default 300"),
  ]

  /// The names that may follow `prefix`; empty if none may.
  package static func children(of prefix: [String]) -> [String] {
    var names: [String] = []
    for key in all where key.path.count > prefix.count && matches(prefix, Array(key.path.prefix(prefix.count))) {
      let name = key.path[prefix.count]
      if !names.contains(name) { names.append(name) }
    }
    return names
  }

  /// Whether the value of a concrete path is a mapping with free names.
  package static func isTree(_ path: [String]) -> Bool {
    all.contains { $0.isTree && matches(path, $0.path) }
  }

  private static func matches(_ path: [String], _ pattern: [String]) -> Bool {
    path.count == pattern.count && zip(path, pattern).allSatisfy { $0 == $1 || $1 == "*" }
  }

  // MARK: - Environment

  package static let variablePrefix = "PUSH_GATEWAY_"

  /// The variable of a concrete path, such as `PUSH_GATEWAY_APPS_PORTEIRO_APNS_KEY_FILE`.
  package static func variable(for path: [String]) -> String {
    variablePrefix + path.map(variablePart).joined(separator: "_")
  }

  /// The path that a variable sets; nil if there is no such key. An app of the file is found whatever the case and
  /// punctuation of its name. Any other app is new, with its name in lower case.
  package static func path(
    forVariable variable: String, apps: [String], databases: [String] = []
  ) -> [String]? {
    guard variable.hasPrefix(variablePrefix) else { return nil }
    let name = String(variable.dropFirst(variablePrefix.count))
    if let key = all.first(where: { !$0.path.contains("*") && $0.path.map(variablePart).joined(separator: "_") == name }
    ) {
      return key.path
    }
    let opsKeys = "DASHBOARD_OPS_KEYS_"
    if name.hasPrefix(opsKeys), name.count > opsKeys.count {
      return ["dashboard", "ops_keys", name.dropFirst(opsKeys.count).lowercased()]
    }
    if name.hasPrefix("DATABASES_"), name.hasSuffix("_URL"), name.count > "DATABASES__URL".count {
      let word = String(name.dropFirst("DATABASES_".count).dropLast("_URL".count))
      return ["databases", databases.first { variablePart($0) == word } ?? word.lowercased(), "url"]
    }
    guard name.hasPrefix("APPS_") else { return nil }
    for key in all where key.path.first == "apps" {
      let suffix = "_" + key.path.dropFirst(2).map(variablePart).joined(separator: "_")
      let app = name.dropFirst("APPS_".count)
      guard app.hasSuffix(suffix), app.count > suffix.count else { continue }
      let word = String(app.dropLast(suffix.count))
      return ["apps", apps.first { variablePart($0) == word } ?? word.lowercased()] + key.path.dropFirst(2)
    }
    return nil
  }

  /// Every possible variable for these apps, for suggestions.
  package static func variables(apps: [String]) -> [String] {
    all.filter { $0.path.last != "*" && $0.path.first != "databases" }.flatMap { key in
      key.path.contains("*")
        ? apps.map { variable(for: ["apps", $0] + key.path.dropFirst(2)) } : [variable(for: key.path)]
    }
  }

  private static func variablePart(_ name: String) -> String {
    String(name.uppercased().map { $0.isASCII && ($0.isLetter || $0.isNumber) ? $0 : "_" })
  }

  // MARK: - Reference

  /// The keys, for `--help`. The summaries are on lines of their own, because `--help` wraps lines at the width of the
  /// terminal.
  package static var reference: String {
    all.map {
      "  \($0.path.joined(separator: ".").replacing("*", with: $0.path.first == "apps" ? "APP" : "NAME"))\n      \($0.summary)"
    }
    .joined(separator: "\n")
  }
}

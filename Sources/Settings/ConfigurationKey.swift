// The keys there are: one table for unknown-key checks, suggestions, environment variables and the reference in --help.

internal import Dialects

/// A key of the configuration. `*` in its path stands for a name: of an app, or of an ops key.
package struct ConfigurationKey: Equatable, Sendable {
  package var path: [String]
  /// One line for the reference.
  package var summary: String
  /// Whether the value is a mapping with names of its own, passed on as a whole.
  package var isTree = false

  private init(_ path: String, _ summary: String, isTree: Bool = false) {
    self.path = path.split(separator: ".").map(String.init)
    self.summary = summary
    self.isTree = isTree
  }

  package static let all: [ConfigurationKey] = [
    ConfigurationKey("database", "postgres:// URL of the outbox; DATABASE_URL goes before it"),
    ConfigurationKey("http.listen", "host:port of /livez and /readyz; 127.0.0.1:8080"),
    ConfigurationKey("http.connections_max", "most connections to http.listen at a time, 1 to 100000; 128"),
    ConfigurationKey(
      "http.hosts",
      "names it is reached by, besides its own and localhost, with commas between them; reading then needs a login; none"
    ),
    ConfigurationKey(
      "http.trusted_proxies",
      "addresses or networks of proxies whose X-Forwarded-For is believed, with commas between them; none"),
    ConfigurationKey(
      "http.metrics_key_file", "file with a key of 32 characters or more that opens /metrics from other machines; none"),
    ConfigurationKey("http.tls.certificate_file", "PEM chain: http.listen speaks TLS with it; none"),
    ConfigurationKey("http.tls.key_file", "its private key (PEM)"),
    ConfigurationKey("api.enabled", "whether backends may enqueue calls over HTTP, see openapi.yaml; false"),
    ConfigurationKey("api.listen", "host:port of the API; 127.0.0.1:8081"),
    ConfigurationKey("api.body_max_bytes", "largest body of a request, 1024 to 1048576; 65536"),
    ConfigurationKey(
      "api.request_timeout_seconds", "how long a request may take to arrive, and the database to answer, 1 to 300; 10"),
    ConfigurationKey(
      "api.busy_after_seconds", "calls are refused (503) while the oldest invite has waited longer, 1 to 600; 5"),
    ConfigurationKey("api.rate_per_second", "most requests a second of one key, 1 to 1000000; 1000"),
    ConfigurationKey("api.connections_max", "most connections at a time, 1 to 100000; 512"),
    ConfigurationKey(
      "api.trusted_proxies",
      "addresses or networks (10.0.0.0/8) of the proxies before it, whose X-Forwarded-For is believed, with commas "
        + "between them; none"),
    ConfigurationKey("api.tls.certificate_file", "PEM chain: api.listen speaks TLS with it; none"),
    ConfigurationKey("api.tls.key_file", "its private key (PEM)"),
    ConfigurationKey(
      "api.tls.client_ca_file",
      "PEM file of the authorities whose certificates the API's clients show; none is asked for"),
    ConfigurationKey(
      "api.tls.client_certificates", "required, or optional: a client may show none, but no wrong one; required"),
    ConfigurationKey("dashboard.enabled", "whether http.listen serves the dashboard at /; true"),
    ConfigurationKey(
      "dashboard.ops_key_file",
      "file with a key of 32 characters or more: whoever shows it may read from other machines, and pause and resume lanes; none"
    ),
    ConfigurationKey("dashboard.ops_keys.*", "file with the ops key of this name, which push.audit shows; none"),
    ConfigurationKey("dashboard.identity.header", "header with the signed token (JWT) of a proxy that knows who it is"),
    ConfigurationKey("dashboard.identity.issuer", "what the token's iss must be"),
    ConfigurationKey("dashboard.identity.audience", "what the token's aud must be, or hold"),
    ConfigurationKey("dashboard.identity.jwks_file", "JWK Set with the proxy's public keys; looked at on every use"),
    ConfigurationKey("dashboard.identity.name_claim", "claim that says who it is; email"),
    ConfigurationKey(
      "dashboard.identity.allowed",
      "who of them is an operator: names, or @example.com for all that end so, with commas between them"),
    ConfigurationKey("dashboard.hosts", "the former name of http.hosts; none"),
    ConfigurationKey("tls.ca_file", "PEM file of certificate authorities, added to the system's"),
    ConfigurationKey(
      "security.allow_readable_secrets",
      "whether files with secrets may be readable by every user of the machine, or belong to any; false"),
    ConfigurationKey(
      "proxy.url",
      "http://host:port of a proxy that takes CONNECT: all connections to providers go through it; none. HTTPS_PROXY and "
        + "NO_PROXY are not looked at"),
    ConfigurationKey(
      "proxy.credentials_file", "file with one line user:password for it; a change is used without a restart"),
    ConfigurationKey(
      "log.level", "trace, debug, info, notice, warning, error or critical; changes without a restart; info"),
    ConfigurationKey("log.format", "json or text; text if standard error is a terminal, else json"),
    ConfigurationKey("shutdown.drain_seconds", "how long a stop waits for pushes in flight, 0 to 300; 10"),
    ConfigurationKey(
      "apps.*.dialect", "what the phones understand: \(ShippedDialects.names.joined(separator: ", ")); intercom"),
    ConfigurationKey(
      "apps.*.templates", "templates laid over the dialect's: PROVIDER: {KIND: {…}}, see docs/dialects.md", isTree: true
    ),
    ConfigurationKey(
      "apps.*.templates_file", "file with such templates, YAML or JSON; apps.APP.templates goes before it"),
    ConfigurationKey(
      "apps.*.locale",
      "language of texts for devices that name none of \(Language.allCases.map(\.rawValue).joined(separator: ", ")); en"
    ),
    ConfigurationKey("apps.*.ring_seconds", "ring window of a call that names none, 1 to 600; 60"),
    ConfigurationKey(
      "apps.*.escalate_after_seconds",
      "when a user none of whose phones said that it rings is tried on the next channel, 1 to 600; never"),
    ConfigurationKey(
      "apps.*.at_least_once",
      "whether missed calls and notifications of unknown fate are sent again, so that some show twice; false"),
    ConfigurationKey(
      "apps.*.missed_calls",
      "missed calls on the newest of a user's phones, on all, or off; newest, but all for those the backend enqueues"),
    ConfigurationKey(
      "apps.*.voip_cancel",
      "whether all its iPhones take a VoIP push for the end of a call, as Telnyx's SDK 4 does; older ones would ring; false"
    ),
    ConfigurationKey("apps.*.proxy.url", "this app's own in place of proxy.url; none: no proxy; proxy.url"),
    ConfigurationKey("apps.*.proxy.credentials_file", "file with one line user:password for it"),
    ConfigurationKey("apps.*.apns.team_id", "Apple team id"),
    ConfigurationKey("apps.*.apns.key_id", "id of the .p8 key"),
    ConfigurationKey("apps.*.apns.key_file", "the .p8 key (ES256, PEM)"),
    ConfigurationKey("apps.*.apns.topic", "bundle id; .voip is added where it belongs"),
    ConfigurationKey("apps.*.apns.production_url", "https://api.push.apple.com"),
    ConfigurationKey("apps.*.apns.sandbox_url", "https://api.sandbox.push.apple.com"),
    ConfigurationKey("apps.*.apns.connections", "connections an environment, 1 to 64; 1"),
    ConfigurationKey(
      "apps.*.apns.streams_per_connection", "most requests in flight on one connection, 1 to 10000; 1000"),
    ConfigurationKey(
      "apps.*.apns.hedge_after_seconds",
      "an invite unanswered for so long, and longer than nearly all answers take, is sent once more over another "
        + "connection, 0 to 60, fractions too; 0.3"),
    ConfigurationKey(
      "apps.*.apns.hedged_percent_max",
      "most pushes that are, in percent, 0 to 10; 2, or 0 for the dialects twilio, enclosure and commeazy"),
    ConfigurationKey("apps.*.fcm.service_account_file", "service account JSON; project_id and token_uri come from it"),
    ConfigurationKey("apps.*.fcm.url", "https://fcm.googleapis.com"),
    ConfigurationKey("apps.*.fcm.connections", "1 to 64; 4"),
    ConfigurationKey("apps.*.fcm.streams_per_connection", "1 to 10000; 100"),
    ConfigurationKey("apps.*.fcm.rate_per_second", "most messages a second, 1 to 1000000; 10000, the default quota"),
    ConfigurationKey("apps.*.fcm.hedge_after_seconds", "as for apns; 0.3"),
    ConfigurationKey("apps.*.fcm.hedged_percent_max", "as for apns; 2 or 0"),
    ConfigurationKey("apps.*.expo.url", "https://exp.host"),
    ConfigurationKey("apps.*.expo.access_token_file", "file with the access token, where the project asks for one"),
    ConfigurationKey("apps.*.expo.connections", "requests at a time, 1 to 64; 6"),
    ConfigurationKey("apps.*.expo.rate_per_second", "most pushes a second, 1 to 1000000; 600, the limit of a project"),
    ConfigurationKey(
      "apps.*.expo.receipt_after_seconds", "wait before a ticket's receipt is asked for, 0 to 86400, fractions too; 900"
    ),
    ConfigurationKey(
      "apps.*.invalidation.dead_percent",
      "dead tokens are put on hold, and not invalidated, above this share of a lane's answers, 1 to 100; 20"),
    ConfigurationKey("apps.*.invalidation.answers_min", "answers needed before the rule applies, 1 to 1000000; 200"),
    ConfigurationKey("apps.*.invalidation.window_seconds", "how far back answers count, 1 to 86400; 300"),
  ]

  /// The names that may follow `prefix`, empty if nothing may.
  package static func children(of prefix: [String]) -> [String] {
    var names: [String] = []
    for key in all where key.path.count > prefix.count && matches(prefix, Array(key.path.prefix(prefix.count))) {
      let name = key.path[prefix.count]
      if !names.contains(name) { names.append(name) }
    }
    return names
  }

  /// Whether the value of a concrete path is a mapping with names of its own.
  package static func isTree(_ path: [String]) -> Bool {
    all.contains { $0.isTree && matches(path, $0.path) }
  }

  private static func matches(_ path: [String], _ pattern: [String]) -> Bool {
    path.count == pattern.count && zip(path, pattern).allSatisfy { $0 == $1 || $1 == "*" }
  }

  // MARK: - Environment

  package static let variablePrefix = "PUSH_GATEWAY_"

  /// The variable of a concrete path: `PUSH_GATEWAY_APPS_PORTEIRO_APNS_KEY_FILE`.
  package static func variable(for path: [String]) -> String {
    variablePrefix + path.map(variablePart).joined(separator: "_")
  }

  /// The path a variable sets, or nil if there is no such key. An app the file has is found whatever the case and the
  /// punctuation of its name; any other is new, and named in lower case.
  package static func path(forVariable variable: String, apps: [String]) -> [String]? {
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

  /// Every variable there could be for these apps, for suggestions.
  package static func variables(apps: [String]) -> [String] {
    all.filter { $0.path.last != "*" }.flatMap { key in
      key.path.contains("*")
        ? apps.map { variable(for: ["apps", $0] + key.path.dropFirst(2)) } : [variable(for: key.path)]
    }
  }

  private static func variablePart(_ name: String) -> String {
    String(name.uppercased().map { $0.isASCII && ($0.isLetter || $0.isNumber) ? $0 : "_" })
  }

  // MARK: - Reference

  /// The keys, for `--help`: it wraps lines at the width of the terminal, so the summaries get lines of their own.
  package static var reference: String {
    all.map {
      "  \($0.path.joined(separator: ".").replacing("*", with: $0.path.last == "*" ? "NAME" : "APP"))\n      \($0.summary)"
    }
    .joined(separator: "\n")
  }
}

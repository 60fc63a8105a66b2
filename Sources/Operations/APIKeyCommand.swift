// `push-gateway api-key`: creates, lists and revokes keys of the HTTP API.

package import ArgumentParser
import Console
import Queue
import Runtime
import Settings

package struct APIKeyCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "api-key",
    abstract: "Create, list and revoke keys of the HTTP API.",
    discussion: """
      A key gives access to one app, within its scopes. The database stores only its SHA-256. To replace a key, create another, \
      deploy it, and revoke the old one; no restart is needed. Creating and revoking require membership in the role push_keys.
      """,
    subcommands: [CreateAPIKeyCommand.self, ListAPIKeysCommand.self, RevokeAPIKeyCommand.self])

  package init() {}
}

struct CreateAPIKeyCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "create",
    abstract: "Create a key, which is shown only once.",
    discussion: """
      Standard output contains the key and nothing else, so that it can be piped to a file or secret store; the rest goes to \
      standard error. push.audit records the creation.

      --json prints one object: id, key, expires.

      \(OperationsOptions.reference)
      """)

  /// The possible scopes, as in push.api_keys.scopes.
  static let scopes = ["enqueue", "device", "read"]

  @Argument(help: "The app that the key gives access to.")
  var app: String

  @Argument(help: "A name for people, such as that of the backend; 1 to 128 characters.")
  var name: String

  @Option(help: "What the key may do: enqueue (and answer and end), device (and report ringing), read.")
  var scopes = CreateAPIKeyCommand.scopes.joined(separator: ",")

  @Option(help: ArgumentHelp("Number of days until the key expires, or never; default a year.", valueName: "days"))
  var expires: String?

  @Option(
    help: ArgumentHelp(
      "Networks that may use the key, separated by commas: 203.0.113.0/24,2001:db8::/32; default any.",
      valueName: "networks"))
  var addresses: String?

  @OptionGroup var options: OperationsOptions

  private var scopeList: [String] { scopes.split { $0 == "," || $0 == " " }.map(String.init) }
  private var isEndless: Bool { expires == "never" }
  private var days: Int32? { expires.flatMap { Int32($0) } }
  /// Each network as given, and as parsed; nil if the key may be used from anywhere.
  private var ranges: [(word: Substring, range: IPRange?)]? {
    addresses.map { $0.split { $0 == "," || $0 == " " }.map { ($0, IPRange($0)) } }
  }

  package func validate() throws {
    guard !scopeList.isEmpty else {
      throw ValidationError("--scopes must be one or more of \(Self.scopes.joined(separator: ","))")
    }
    for scope in scopeList where !Self.scopes.contains(scope) {
      throw ValidationError(
        "--scopes: there is no scope \(scope)"
          + Suggestion.text(for: scope, among: Self.scopes) + " (\(Self.scopes.joined(separator: ", ")))")
    }
    if expires != nil, !isEndless, !(1...36_500 ~= days ?? 0) {
      throw ValidationError("--expires must be from 1 to 36500 days, or never")
    }
    if let ranges {
      guard 1...64 ~= ranges.count else { throw ValidationError("--addresses must be 1 to 64 networks") }
      for (word, range) in ranges where range == nil {
        throw ValidationError("--addresses: \(word) is not a network such as 203.0.113.0/24 or 2001:db8::/32")
      }
    }
  }

  package init() {}

  package func run() async throws {
    try await options.withConnection(requires: "push_keys") { connection in
      let made = try await create(on: connection)
      StandardOutput.write(options.json ? made.json : made.key)
      StandardError.write(
        "key \(made.id) gives access to app \(Terminal.printable(app)) for \(scopeList.joined(separator: ", "))"
          + (ranges.map { " from " + $0.compactMap { $0.range?.description }.joined(separator: ", ") } ?? "")
          + (made.day.map { " until \($0)" } ?? ", without expiry")
          + ". It is shown only once; push-gateway api-key revoke \(made.id) revokes it")
      if let doubt = try await doubt(on: connection) { StandardError.write(doubt) }
    }
  }

  /// Creates the key.
  ///
  /// - Returns: `day` is the day on which it expires; nil: never.
  func create(
    on connection: PostgresConnection
  ) async throws(PostgresError) -> (id: Int32, key: String, json: String, day: String?) {
    var parameters = PostgresParameters()
    parameters.append(app)
    parameters.append(name)
    parameters.append(scopeList)
    parameters.append(days)
    parameters.append(isEndless)
    parameters.append(ranges?.compactMap { $0.range?.description }.joined(separator: ","))
    let row = try await connection.query(Self.create, parameters)
    return (row.int32(0, 0), row.text(0, 1), row.text(0, 2), row.isNull(0, 3) ? nil : row.text(0, 3))
  }

  /// A warning if no gateway has served the app yet. The app may be new, or its name misspelt.
  func doubt(on connection: PostgresConnection) async throws(PostgresError) -> String? {
    let rows = try await connection.query(Self.apps)
    let apps = (0..<rows.rowCount).map { rows.text($0, 0) }
    if apps.contains(app) { return nil }
    return "warning: no gateway has served an app \(app) yet" + Suggestion.text(for: app, among: apps)
  }

  private static let create = PostgresStatement(
    name: "create_api_key",
    sql: """
      select k.id, k.key, row_to_json(k)::text, to_char(k.expires at time zone 'UTC', 'YYYY-MM-DD')
      from push.create_api_key($1, $2, $3,
        case when not $5 then now() + coalesce(make_interval(days => $4), interval '1 year') end,
        string_to_array($6, ',')::cidr[]) k
      """)

  private static let apps = PostgresStatement(name: "apps", sql: "select app from push.apps order by app")
}

struct ListAPIKeysCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "list",
    abstract: "Show all keys, without their secrets.",
    discussion: """
      Shows number (the part after pgk_), app, name, scopes, expiry or revocation, allowed networks, and when and from which \
      address the key was last used, to the minute.

      --json prints an array: id, app, name, scopes, created_at, expires_at, revoked_at, addresses, last_used_at, last_used_from.

      \(OperationsOptions.reference)
      """)

  @Option(help: "Show only keys of this app.")
  var app: String?

  @OptionGroup var options: OperationsOptions

  package init() {}

  package func run() async throws {
    var parameters = PostgresParameters()
    parameters.append(app)
    try await options.withConnection(requires: "push_keys") {
      try await options.show(.keys, parameters, on: $0, nothing: "there are no keys")
    }
  }
}

struct RevokeAPIKeyCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "revoke",
    abstract: "Revoke a key.",
    discussion: """
      Repeating it does no harm. push.audit records the revocation.

      --json prints one object: revoked, message.

      \(OperationsOptions.reference)
      """)

  @Argument(help: "Number of the key: its part after pgk_.")
  var id: Int32

  @OptionGroup var options: OperationsOptions

  var intervention: Intervention {
    Intervention("revoke_api_key", requires: "push_keys") {
      $0.append(id)
    } diagnose: { _ in
      throw CommandFailure("there is no API key \(id) (push-gateway api-key list lists them)")
    }
  }

  package init() {}

  package func run() async throws { try await intervention.run(options) }
}

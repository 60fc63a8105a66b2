// `push-gateway api-key`: keys to the HTTP API, made, listed and revoked.

package import ArgumentParser
import Console
import Queue
import Runtime
import Settings

package struct APIKeyCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "api-key",
    abstract: "Make, list and revoke keys to the HTTP API.",
    discussion: """
      A key opens one app, for what its scopes say. The database keeps its SHA-256 only. To rotate a key: create another, move over, \
      revoke the old one; no restart is needed. Making and revoking take a member of the role push_keys.
      """,
    subcommands: [CreateAPIKeyCommand.self, ListAPIKeysCommand.self, RevokeAPIKeyCommand.self])

  package init() {}
}

struct CreateAPIKeyCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "create",
    abstract: "Make a key, which is shown this once.",
    discussion: """
      The key, and nothing else, goes to standard output, so that it can be piped to where it is kept; the rest goes to standard \
      error. It is written down in push.audit.

      --json prints one object: id, key, expires.

      \(OperationsOptions.reference)
      """)

  /// What a key may be good for, as in push.api_keys.scopes.
  static let scopes = ["enqueue", "device", "read"]

  @Argument(help: "The app it opens.")
  var app: String

  @Argument(help: "Who has it, for people; 1 to 128 characters.")
  var name: String

  @Option(help: "What it may do: enqueue (and answer and end), device (and report ringing), read.")
  var scopes = CreateAPIKeyCommand.scopes.joined(separator: ",")

  @Option(help: ArgumentHelp("After how many days it is refused, or never; in a year.", valueName: "days"))
  var expires: String?

  @Option(
    help: ArgumentHelp(
      "Networks it may be used from, with commas between them: 203.0.113.0/24,2001:db8::/32; anywhere.",
      valueName: "networks"))
  var addresses: String?

  @OptionGroup var options: OperationsOptions

  private var scopeList: [String] { scopes.split { $0 == "," || $0 == " " }.map(String.init) }
  private var isEndless: Bool { expires == "never" }
  private var days: Int32? { expires.flatMap { Int32($0) } }
  /// What is written, and what it means; nil: anywhere.
  private var ranges: [(word: Substring, range: IPRange?)]? {
    addresses.map { $0.split { $0 == "," || $0 == " " }.map { ($0, IPRange($0)) } }
  }

  package func validate() throws {
    guard !scopeList.isEmpty else {
      throw ValidationError("--scopes must be some of \(Self.scopes.joined(separator: ","))")
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
        throw ValidationError("--addresses: \(word) is no network such as 203.0.113.0/24 or 2001:db8::/32")
      }
    }
  }

  package init() {}

  package func run() async throws {
    try await options.withConnection { connection in
      let made = try await create(on: connection)
      StandardOutput.write(options.json ? made.json : made.key)
      StandardError.write(
        "key \(made.id) opens app \(Terminal.printable(app)) for \(scopeList.joined(separator: ", "))"
          + (ranges.map { " from " + $0.compactMap { $0.range?.description }.joined(separator: ", ") } ?? "")
          + (made.day.map { " until \($0)" } ?? ", for ever")
          + ". It is shown this once; push-gateway api-key revoke \(made.id) ends it")
      if let doubt = try await doubt(on: connection) { StandardError.write(doubt) }
    }
  }

  /// Makes the key.
  ///
  /// - Returns: `day`: when it expires; nil: never.
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

  /// An app is known once a gateway has served it, which may come later. Or the name is wrong.
  func doubt(on connection: PostgresConnection) async throws(PostgresError) -> String? {
    let rows = try await connection.query(Self.apps)
    let apps = (0..<rows.rowCount).map { rows.text($0, 0) }
    if apps.contains(app) { return nil }
    return "warning: no gateway has served an app \(app) so far" + Suggestion.text(for: app, among: apps)
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
    abstract: "Show which keys there are, without the keys.",
    discussion: """
      Their numbers (the part after pgk_), apps, names, scopes, since when they are refused, the networks they are bound to, and when \
      and from where they were used last, to a minute.

      --json prints an array: id, app, name, scopes, created_at, expires_at, revoked_at, addresses, last_used_at, last_used_from.

      \(OperationsOptions.reference)
      """)

  @Option(help: "Only those of this app.")
  var app: String?

  @OptionGroup var options: OperationsOptions

  package init() {}

  package func run() async throws {
    var parameters = PostgresParameters()
    parameters.append(app)
    try await options.withConnection {
      try await options.show(.keys, parameters, on: $0, nothing: "there are no keys")
    }
  }
}

struct RevokeAPIKeyCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "revoke",
    abstract: "Refuse a key from now on.",
    discussion: """
      Running it twice is harmless. It is written down in push.audit.

      --json prints one object: revoked, message.

      \(OperationsOptions.reference)
      """)

  @Argument(help: "Number of the key: its part after pgk_.")
  var id: Int32

  @OptionGroup var options: OperationsOptions

  var intervention: Intervention {
    Intervention("revoke_api_key") {
      $0.append(id)
    } diagnose: { _ in
      throw CommandFailure("there is no API key \(id) (push-gateway api-key list lists them)")
    }
  }

  package init() {}

  package func run() async throws { try await intervention.run(options) }
}

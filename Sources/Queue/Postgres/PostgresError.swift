// Errors of connections and statements. Their text is safe to log: it has no SQL, no parameters and no password.

internal import CLibPQ

/// An error of a connection or a statement.
public struct PostgresError: Error, Sendable, CustomStringConvertible {
  /// The kind of failure, which decides what to do about it.
  public enum Code: Sendable, Equatable {
    /// The server could not be reached, or refused the connection.
    case connectionFailed
    /// The connection broke. A statement under way may have been executed or not.
    case connectionLost
    /// The server refused the statement; the five-character SQLSTATE says why.
    case server(sqlState: String)
    /// The answer does not have the expected columns: the schema is of another version.
    case unexpectedResult
  }

  public var code: Code
  /// One sentence for people.
  public var message: String
  /// What to do about it, if the server or the gateway knows.
  public var hint: String?

  public init(_ code: Code, _ message: String, hint: String? = nil) {
    self.code = code
    self.message = message
    self.hint = hint
  }

  public var description: String {
    var text = message
    if case .server(let sqlState) = code { text += " (SQLSTATE \(sqlState))" }
    if let hint { text += ". \(hint)" }
    return text
  }

  /// Whether the same statement may succeed when it is tried again: the connection is gone, or the server asked for a retry
  /// (serialization failure, deadlock, lock or statement timeout, shutting down, out of resources), or it is the wrong server.
  /// False for an app that has used up its quota: that passes, but the one who enqueues has to slow down.
  public var isTransient: Bool {
    switch code {
    case .connectionFailed, .connectionLost: return true
    case .unexpectedResult: return false
    case .server(Self.quotaState): return false
    case .server(let sqlState):
      return ["40", "53", "57", "08"].contains(String(sqlState.prefix(2))) || sqlState == "55P03" || needsNewConnection
    }
  }

  /// Whether only a new connection helps: to a server that takes writes (25006), or because the prepared statements are gone
  /// (26000).
  var needsNewConnection: Bool { code == .server(sqlState: "25006") || code == .server(sqlState: "26000") }

  /// SQLSTATEs whose message quotes the offending input.
  private static let quotingStates: Set<String> = ["22P02", "22P03", "22P04", "22007", "22008", "22032"]

  /// What the server has run out of.
  public enum Shortage: Sendable {
    case locks, memory, disk, connections

    /// What to do. The server's own hint misleads: a larger table does not help against a session that fills it.
    var remedy: String {
      switch self {
      case .locks: "Its table of locks is full: end the session that holds most of them, pg_locks says which"
      case .memory: "Its host has no memory left"
      case .disk: "Its disk is full: make room there"
      case .connections: "It takes no more connections: have fewer, or raise max_connections"
      }
    }
  }

  /// The SQLSTATE with which enqueueing refuses an app that has used up its quota (`push.quota_fault`).
  public static let quotaState = "53Q01"

  /// When an app that has used up its quota may try again; nil for every other error. At least 1.
  public private(set) var retryAfterSeconds: Int?

  /// The number in the DETAIL of `quotaState`, which quotes nothing.
  private static func retryAfterSeconds(_ detail: String?) -> Int {
    guard let detail, let number = detail.split(separator: "=").last.flatMap({ Int($0) }) else { return 1 }
    return min(max(number, 1), 3600)
  }

  /// What the server has run out of, if that is why it refused the statement.
  public private(set) var shortage: Shortage?

  /// The server's hint names this setting in every language. Nothing else distinguishes a full lock table from a lack of memory.
  private static let locksSetting = "max_locks_per_transaction"

  private static func shortage(_ sqlState: String, _ hint: String?) -> Shortage? {
    switch sqlState {
    case "53100": .disk
    case "53200": hint?.contains(locksSetting) == true ? .locks : .memory
    case "53300": .connections
    default: nil
    }
  }

  /// What to do if a prepared statement is missing, or is there although the session is new.
  private static func sharedSessionHint(_ sqlState: String) -> String? {
    guard sqlState == "26000" || sqlState == "42P05" else { return nil }
    return "If a pooler in transaction mode answers, give the address of Postgres itself, or of a pool in session mode."
  }

  private init(_ code: Code, _ message: String, shortage: Shortage?, hint: String?) {
    self.init(code, message, hint: shortage?.remedy ?? hint)
    self.shortage = shortage
  }

  /// The error a result carries. DETAIL and CONTEXT are left out because they quote rows and statements.
  static func from(_ result: OpaquePointer) -> PostgresError {
    guard let sqlState = unsafe field(result, Int32(UInt8(ascii: "C"))) else {
      // Only the server gives a SQLSTATE. Without one the error is libpq's: the connection broke.
      return PostgresError(.connectionLost, "the connection to Postgres broke while a statement was under way")
    }
    let primary = unsafe field(result, Int32(UInt8(ascii: "M"))) ?? "the server gave no reason"
    let hint = unsafe field(result, Int32(UInt8(ascii: "H"))) ?? sharedSessionHint(sqlState)
    if quotingStates.contains(sqlState) {
      return PostgresError(.server(sqlState: sqlState), "the server could not read a value of the statement")
    }
    var error = PostgresError(.server(sqlState: sqlState), primary, shortage: shortage(sqlState, hint), hint: hint)
    if sqlState == quotaState {
      error.retryAfterSeconds = unsafe retryAfterSeconds(field(result, Int32(UInt8(ascii: "D"))))
    }
    return error
  }

  /// With which SQLSTATE the server refused the connection; nil if it was not reached, or for another error.
  public internal(set) var refusal: String?

  /// What to do if the server refuses the connection.
  static func remedy(ofRefusal sqlState: String?) -> String? {
    switch sqlState {
    case "3D000": "Create the database, or correct its name in the URL"
    case "28000": "Create the login, correct its name in the URL, or let it in with pg_hba.conf"
    case "28P01": "Correct the user or the password in the URL"
    default: nil
    }
  }

  /// What to do if TLS with the server fails; nil if the connection failed for another reason. libpq has no code for it: in other languages
  /// than English such a server counts as one that cannot be reached.
  public var remedyOfTLS: String? {
    guard code == .connectionFailed, refusal == nil else { return nil }
    if message.contains("does not support SSL") {
      return "The server does not offer TLS, which sslmode requires: turn it on there (ssl = on, with a certificate), "
        + "or set sslmode=disable in the URL, if nobody can listen on the way"
    }
    guard message.contains("certificate") || message.contains("SSL error") else { return nil }
    return "Correct sslmode and sslrootcert in the URL, or the certificate of the server"
  }

  /// Why a connection failed: libpq's text, which names host, port, user and database but never the password.
  static func connectionFailure(_ code: Code, _ connection: OpaquePointer) -> PostgresError {
    let text = unsafe PQerrorMessage(connection).map { unsafe String(cString: $0) } ?? ""
    var line = text.split(separator: "\n").first.map(String.init) ?? "the connection to Postgres was lost"
    // `PQERRORS_VERBOSE` puts the SQLSTATE between the severity and the message.
    var refusal: String?
    if let found = line.firstMatch(of: #/:  ([0-9A-Z]{5}): /#) {
      refusal = String(found.1)
      line.replaceSubrange(found.range, with: ":  ")
    }
    var error = PostgresError(
      code, line, shortage: text.contains(locksSetting) ? .locks : nil, hint: remedy(ofRefusal: refusal))
    error.refusal = refusal
    return error
  }

  private static func field(_ result: OpaquePointer, _ code: Int32) -> String? {
    unsafe PQresultErrorField(result, code).map { unsafe String(cString: $0) }
  }
}

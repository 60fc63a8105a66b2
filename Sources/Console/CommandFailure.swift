// The error of a command that was used correctly but failed: exit code 1, or 78 for the configuration, and one sentence
// on standard error.

package import Queue
package import Settings

/// Printed by the argument parser as `Error: …`.
package struct CommandFailure: Error, CustomStringConvertible {
  package let description: String
  /// Whether trying again may succeed.
  package let isTransient: Bool
  /// Whether the configuration is wrong, which has an exit code of its own.
  package let isConfiguration: Bool

  package init(_ description: String, isConfiguration: Bool = false) {
    self.description = description
    isTransient = false
    self.isConfiguration = isConfiguration
  }

  package init(_ error: ConfigurationError) {
    description = error.description
    isTransient = false
    isConfiguration = true
  }

  /// An error of the database, with its remedy.
  ///
  /// - Parameter role: the role that the command requires.
  package init(_ error: PostgresError, requires role: String = "push_ops") {
    description = Terminal.printable(Self.text(error, role))
    isTransient = error.isTransient
    isConfiguration = false
  }

  private static func text(_ error: PostgresError, _ role: String) -> String {
    switch error.code {
    case .connectionFailed where error.refusal != nil: "the database refuses the connection: \(error.description)"
    case .connectionFailed where error.remedyOfTLS != nil:
      "no TLS with the database: \(error.message). \(error.remedyOfTLS ?? "")"
    case .connectionFailed where error.message.contains("session is read-only"):
      "the database takes no writes, as a standby does (\(error.message)). Connect to its primary; if this is the primary, see "
        + "docs/operations/the-database-is-read-only.md. To look at a standby, add target_session_attrs=any to the parameters of DATABASE_URL"
    case .connectionFailed:
      "cannot reach the database: \(error.message). Check that it is running, and DATABASE_URL (or the key database of the configuration)"
    case .connectionLost: "\(error.message): try again"
    case .unexpectedResult: error.description
    case .server("42P01"), .server("42883"), .server("42703"), .server("3F000"):
      "the schema push of this database is missing, or does not match push-gateway \(GatewayVersion.current) (\(error.message)): run "
        + "push-gateway migrate"
    case .server("42501") where error.hint == nil:
      refusal(error.message, enqueues(error.message) ? "push_enqueuer" : role)
    case .server("42501"): [error.message, error.hint].compactMap(\.self).joined(separator: ". ")
    case .server("P0002"), .server("21000"), .server("22023"):
      [error.message, error.hint].compactMap(\.self).joined(separator: ". ")
    case .server: error.description + (error.isTransient ? ": try again" : "")
    }
  }

  private static func refusal(_ message: String, _ role: String) -> String {
    "\(message): this requires membership in the role \(role), or ownership of the schema push. "
      + (role == "push_enqueuer"
        ? "Grant \(role) to the login"
        : "The command is for operators: run it with a login of their own that has \(role), and do not grant that to a backend's login")
  }

  /// Whether the message is about a function that only backends may call.
  private static func enqueues(_ message: String) -> Bool {
    message.contains("new_call_id") || message.contains("enqueue_call")
  }
}

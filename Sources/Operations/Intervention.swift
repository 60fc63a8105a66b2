// A change that an operator makes to a running gateway, by a function of the schema push that returns a message.

internal import Console
internal import Queue

/// A call of a function that returns one row with a column `message`.
struct Intervention: Sendable {
  /// Name of the function, without the schema.
  let function: String
  private let role: String
  private let parameters: PostgresParameters
  private let diagnose: @Sendable (PostgresConnection) async throws -> Void

  /// - Parameters:
  ///   - role: the role that the function requires.
  ///   - parameters: appends the function's arguments in order.
  ///   - diagnose: throws a `CommandFailure` that explains the error if the subject does not exist or is ambiguous.
  init(
    _ function: String, requires role: String = "push_ops", _ parameters: (inout PostgresParameters) -> Void,
    diagnose: @escaping @Sendable (PostgresConnection) async throws -> Void
  ) {
    self.function = function
    self.role = role
    self.diagnose = diagnose
    var appended = PostgresParameters()
    parameters(&appended)
    self.parameters = appended
  }

  /// Calls the function. Returns its message, or the whole row as a JSON object.
  func perform(on connection: PostgresConnection, json: Bool = false) async throws -> String {
    let places = (1...parameters.count).map { "$\($0)" }.joined(separator: ", ")
    let statement = PostgresStatement(
      name: "\(function)_\(json ? "json" : "text")",
      text: "select \(json ? "row_to_json(r)::text" : "r.message") from push.\(function)(\(places)) r")
    do throws(PostgresError) {
      let text = try await connection.query(statement, parameters).text(0, 0)
      return json ? text : Terminal.printable(text)
    } catch {
      if error.isAboutSubject { try await diagnose(connection) }
      throw error
    }
  }

  /// Calls the function and prints the result.
  func run(_ options: OperationsOptions) async throws {
    try await options.withConnection(requires: role) {
      StandardOutput.write(try await perform(on: $0, json: options.json))
    }
  }
}

extension PostgresError {
  /// The subject of the arguments does not exist (no_data_found), or is ambiguous (cardinality_violation).
  fileprivate var isAboutSubject: Bool {
    code == .server(sqlState: "P0002") || code == .server(sqlState: "21000")
  }
}

// Asks a database whether a gateway can serve it: reachable, UTF8, a session for each connection, the schema, the role's rights.

import Console
import Queue
import Runtime
import Settings

struct DatabaseCheck {
  let database: GatewayConfiguration.Database
  /// How long it may take.
  let limit: Nanoseconds
  let loop: EventLoop

  /// What is wrong, as an error.
  private struct Fault: Error {
    let finding: ConnectCheck.Finding
    let text: String
  }

  private static let server = PostgresStatement(
    name: "check_server",
    sql: "select current_setting('server_encoding'), current_user::text, current_setting('server_version')")
  /// What gateways must be allowed to do, and this role may not.
  private static let rights = PostgresStatement(
    name: "check_rights",
    sql: """
      select coalesce(string_agg(r."right", ', ' order by r."right"), '') from push.missing_rights r where r.role = current_user
      """)

  func run() async -> ConnectCheck {
    let subject = database.name.map { "databases.\($0)" } ?? "database"
    let (results, report) = AsyncStream<ConnectCheck>.makeStream()
    let asking = Task {
      do {
        report.yield(ConnectCheck(subject: subject, finding: .good, text: try await ask()))
      } catch let fault as Fault {
        report.yield(ConnectCheck(subject: subject, finding: fault.finding, text: fault.text))
      } catch let error as PostgresError {
        report.yield(ConnectCheck(subject: subject, finding: Self.finding(error), text: Self.text(error)))
      } catch {
        report.yield(ConnectCheck(subject: subject, finding: .refused, text: "\(error)"))
      }
    }
    let timer = Task { [limit] in
      try? await Task.sleep(for: .milliseconds(limit.milliseconds))
      report.yield(
        ConnectCheck(
          subject: subject, finding: .unreachable,
          text: "no answer within \(limit.milliseconds / 1_000) s: check the address, and that the server is well"))
    }
    defer {
      asking.cancel()
      timer.cancel()
    }
    for await result in results { return result }
    preconditionFailure("the stream ends with its reader")
  }

  private func ask() async throws -> String {
    let connection = try await connect()
    let other: PostgresConnection
    do { other = try await connect() } catch {
      await connection.close()
      throw error
    }
    let result: Result<String, any Error>
    do { result = .success(try await ask(connection, beside: other)) } catch { result = .failure(error) }
    await connection.close()
    await other.close()
    return try result.get()
  }

  private func connect() async throws -> PostgresConnection {
    try await PostgresConnection.connect(to: database.url, applicationName: "push-gateway check-config", on: loop)
  }

  private func ask(_ connection: PostgresConnection, beside other: PostgresConnection) async throws -> String {
    if try await SchemaCheck.isPooled(connection, other, limit) {
      throw Fault(finding: .refused, text: "\(SchemaCheck.Failure.isPooled)")
    }
    let server = try await connection.query(Self.server, patience: limit)
    guard server.text(0, 0) == "UTF8" else {
      throw Fault(
        finding: .refused,
        text:
          "its encoding is \(server.text(0, 0)), and names of callers need UTF8: create a database with encoding UTF8")
    }
    let role = server.text(0, 1)
    let schema: String
    switch try await readiness(connection, role) {
    case .isCurrent: schema = "the schema is up to date"
    case .isNewer(let release): schema = "the schema is of \(release), which this version can serve"
    case .isBeingMigrated:
      throw Fault(finding: .unreachable, text: "a newer release is migrating the schema: try again when it is done")
    case .lacks(let pending):
      throw Fault(finding: .refused, text: "\(SchemaCheck.Failure.isOutdated(missing: [Self.few(pending.titles)]))")
    }
    let missing = try await connection.query(Self.rights, patience: limit).text(0, 0)
    guard missing.isEmpty else {
      throw Fault(
        finding: .refused,
        text:
          "\(role) may not \(Self.few(missing.split(separator: ", "))): grant push_gateway to \(role), and as the owner of the "
          + "schema: select push.grant_roles()"
      )
    }
    return "Postgres \(server.text(0, 2)) as \(role): UTF8, \(schema), and \(role) has the rights of a gateway"
  }

  private func readiness(_ connection: PostgresConnection, _ role: String) async throws -> Migrator.Readiness {
    do {
      return try await Migrator().readiness(on: connection, patience: limit)
    } catch let error as PostgresError where error.code == .server(sqlState: "42501") {
      throw Fault(
        finding: .refused,
        text: "\(role) may not read the schema push (\(error.message)): grant push_gateway to \(role)")
    }
  }

  /// The first three of a list of names.
  private static func few(_ names: [some StringProtocol]) -> String {
    names.prefix(3).joined(separator: ", ") + (names.count > 3 ? " and \(names.count - 3) more" : "")
  }

  // MARK: - Errors

  private static func finding(_ error: PostgresError) -> ConnectCheck.Finding {
    if error.isTransient, error.remedyOfTLS == nil, !isRefusal(error) { return .unreachable }
    return .refused
  }

  private static func text(_ error: PostgresError) -> String {
    if error.remedyOfTLS == nil, isRefusal(error) {
      return
        "\(error.message): check the role, its password and the database's name in DATABASE_URL, or in the key database"
    }
    return Terminal.printable("\(CommandFailure(error))")
  }

  /// Whether the server, or a pooler, has refused to connect for a reason that waiting does not change. libpq gives no SQLSTATE
  /// for that; in other languages than English such a refusal counts as a server that cannot be reached.
  private static func isRefusal(_ error: PostgresError) -> Bool {
    error.code == .connectionFailed
      && ["authentication failed", "does not exist", "no pg_hba.conf entry", "no such database", "permission denied"]
        .contains { error.message.contains($0) }
  }
}

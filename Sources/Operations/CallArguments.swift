// The arguments that name a call.

import ArgumentParser
import Console
import Queue

struct CallArguments: ParsableArguments {
  @Argument(help: "The callId of the payload.")
  var callID: String

  @Option(help: "The call's app; needed only if several apps have a call of this id.")
  var app: String?

  /// - Throws: `CommandFailure` if there is no such call, or several apps have one.
  func check(on connection: PostgresConnection) async throws {
    var parameters = PostgresParameters()
    parameters.append(callID)
    let rows = try await connection.query(Self.appsOfCall, parameters)
    try check(apps: (0..<rows.rowCount).map { rows.text($0, 0) })
  }

  /// - Parameter apps: the apps that have a call with this id.
  func check(apps: [String]) throws(CommandFailure) {
    let names = apps.joined(separator: ", ")
    if apps.isEmpty {
      throw CommandFailure(
        "there is no call \(callID): it was never enqueued, its transaction has not committed, or its history has been "
          + "deleted")
    }
    if let app, !apps.contains(app) {
      throw CommandFailure("there is no call \(callID) in app \(app), but in \(names)")
    }
    if app == nil, apps.count > 1 {
      throw CommandFailure("several apps have a call \(callID): name one with --app (\(names))")
    }
  }

  /// An intervention in this call.
  func intervention(_ function: String, _ parameters: (inout PostgresParameters) -> Void) -> Intervention {
    Intervention(function, parameters) { try await self.check(on: $0) }
  }

  private static let appsOfCall = PostgresStatement(
    name: "apps_of_call", sql: "select app from push.outbox where call_id = $1 order by app")
}

// A mistyped database URL, with the built program: every command refuses it before it connects, with one sentence and
// exit code 78, and writes no part of the password.

import Foundation
import HTTP2TestSupport
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10))) struct DatabaseURLCommandTests {
  /// URLs with typical mistakes, such as a character of the password that is not written as %XX. `hunter` and `2secret`
  /// are parts of the passwords.
  static let mistyped = [
    "postgres://push:hunter@2secret@db.example/push", "postgres://push:hunter/2secret@db.example/push",
    "postgres://push:hunter?2secret@db.example/push", "postgres://push:hunter%2secret@db.example/push",
    "postgres://push:hunter 2secret@db.example/push", "postgres://push:hunter:2secret",
    "postgres//push:hunter2secret@db/push",
    "postgres:/push:hunter2secret@db/push", "postgresqll://push:hunter2secret@db/push",
    "push:hunter2secret@db.example/push",
    "'postgres://push:hunter2secret@db/push'", "host=db password=hunter2secret",
    "postgres://push:hunter2secret@db:54 32/push",
    "postgres://push:hunter2secret@db:hunter/push", "postgres://push:hunter2secret@db:99999/push",
    "postgres://push:hunter2secret@d$b/push", "postgres://db/push?pasword=hunter2secret",
    "postgres://db/push?password=hunter&2secret", "postgres://db/push?password=hunter=2secret",
    "postgres://push:hunter#2secret@db#/push",
    "postgres://push:hunter2secret@[::1/push",
    "postgres://hunter2secret:70000/push", "postgres://push:hunter\\2secret@db\\/push",
  ]

  @Test(arguments: [
    ("stat", "there is no command stat; did you mean status?"),
    ("migrat", "there is no command migrat; did you mean migrate?"), ("frob", "there is no command frob"),
  ])
  func `a mistyped command is named, with the one that was meant`(word: String, says: String) async throws {
    let run = try await OperationsFixture.run("", [word, "x"])
    #expect(run.status == 64 && run.errors.hasPrefix("Error: \(says)\n"), "\(run)")
  }

  @Test(arguments: [
    (
      ["app", "add", "x", "--fcm-service-acount-file", "a.json"], "--fcm-service-acount-file",
      "--fcm-service-account-file"
    ),
    (["app", "add", "x", "--fcm-service-account=a.json"], "--fcm-service-account", "--fcm-service-account-file"),
    (["ring", "--app", "a", "--usr", "u"], "--usr", "--user"),
    (["api-key", "create", "a", "n", "--scope", ""], "--scope", "--scopes"),
    (["status", "--frobnicate"], "--frobnicate", ""),
  ])
  func `a mistyped option is named, with the one that was meant, before what is missing`(
    arguments: [String], option: String, meant: String
  ) async throws {
    let run = try await OperationsFixture.run("", arguments)
    let says = "there is no option \(option)" + (meant.isEmpty ? "" : "; did you mean \(meant)?")
    #expect(run.status == 64 && run.errors.hasPrefix("Error: \(says)\n"), "\(run)")
  }

  @Test func `a database or a login that does not exist is told apart from a server that does not answer`() async throws
  {
    try await TestDatabase.with(.empty) { database in
      let url = database.url
      let none = url.replacing(#/\/[^\/?]*(\?|$)/#, with: { "/no_such_database" + $0.output.1 })
      let run = try await OperationsFixture.run(none, ["status"])
      #expect(run.status == 1 && run.errors.contains("the database refuses the connection: "), "\(run)")
      #expect(run.errors.contains("Create the database, or correct its name in the URL"), "\(run)")
      #expect(!run.errors.contains("3D000"), "\(run)")
    }
    let unanswered = try await OperationsFixture.run("postgres://push@127.0.0.1:1/push?connect_timeout=1", ["status"])
    #expect(unanswered.status == 1 && unanswered.errors.contains("cannot reach the database: "), "\(unanswered)")
  }

  @Test func `a standby is told apart from a server that does not answer, and status shows it if the URL says so`()
    async throws
  {
    try await OperationsFixture.with { database in
      try await database.execute("alter database \(database.name) set default_transaction_read_only = on")
      let refused = try await OperationsFixture.run(database.url, ["status"])
      #expect(refused.status == 1 && refused.errors.hasPrefix("Error: the database takes no writes"), "\(refused)")
      #expect(refused.errors.contains("target_session_attrs=any"), "\(refused)")
      let any = database.url + (database.url.contains("?") ? "&" : "?") + "target_session_attrs=any"
      let shown = try await OperationsFixture.run(any, ["status"])
      #expect(shown.status == 0 && shown.output.contains("LANES"), "\(shown)")
    }
  }

  @Test func `a server without TLS is told apart from one that does not answer`() async throws {
    try await TestDatabase.with(.empty) { database in
      let place = try #require(database.url.split(separator: "@").last?.split(separator: "/").first)
      let port = try #require(place.split(separator: ":").last)
      let url = "postgres://push@127.0.0.1:\(port)/\(database.name)?sslmode=require&gssencmode=disable"
      let run = try await OperationsFixture.run(url, ["status"])
      #expect(run.status == 1 && run.errors.hasPrefix("Error: no TLS with the database: "), "\(run)")
      #expect(run.errors.contains("The server does not offer TLS, which sslmode requires"), "\(run)")
    }
  }

  @Test(arguments: [
    ["status"], ["migrate", "--check"], ["enqueue", "-"], ["timeline", "x"], ["ring", "--app", "a", "--user", "u"],
  ])
  func `a configuration file that was given must be there, although DATABASE_URL is set`(command: [String]) async throws
  {
    let nowhere = "postgres://push@127.0.0.1:1/push?connect_timeout=1"
    let given = try await OperationsFixture.run(nowhere, command + ["--config", "/nonexistent/gateway.yaml"])
    #expect(
      given.status == 78 && given.errors == "Error: /nonexistent/gateway.yaml: there is no such file\n", "\(given)")
    // The file of a service, which an operator may not read.
    let found = try await OperationsFixture.run(
      nowhere, command, environment: ["PUSH_GATEWAY_CONFIG": "/nonexistent/gateway.yaml"])
    #expect(found.status == 1 && found.errors.contains("cannot reach the database: "), "\(found)")
  }

  @Test(arguments: mistyped)
  func `a mistyped database URL is refused with 78, and no part of the password is printed`(url: String) async throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "mistyped-\(UUID().uuidString)").path()
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try SecretFixture.write("apps: { a: { expo: } }\n", to: folder + "/gateway.yaml")
    let quoted = "\"" + url.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    try SecretFixture.write("database: \(quoted)\napps: { a: { expo: } }\n", to: folder + "/with.yaml")
    var runs: [(String, CommandRun)] = []
    for command in ["serve", "check-config", "migrate", "status"] {
      runs.append((command, try await OperationsFixture.run(url, [command, "--config", folder + "/gateway.yaml"])))
      runs.append((command, try await OperationsFixture.run("", [command, "--config", folder + "/with.yaml"])))
    }
    for (command, run) in runs {
      #expect(run.status == 78, "\(command): \(run)")
      #expect(run.errors.contains("database: "), "\(command): \(run)")
      #expect(run.errors.split(separator: "\n").count == 1, "\(command): \(run)")
      for piece in ["hunter", "secret", "70000", "99999"] {
        #expect(!run.errors.contains(piece) && !run.output.contains(piece), "\(command): \(run)")
      }
    }
    let load = try await OperationsFixture.run("", ["loadtest", "--database", url, "--calls", "1"])
    #expect(load.status != 0)
    for piece in ["hunter", "secret"] {
      #expect(!load.errors.contains(piece) && !load.output.contains(piece), "\(load)")
    }
  }
}

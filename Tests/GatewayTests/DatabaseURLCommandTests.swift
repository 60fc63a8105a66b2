// A mistyped database URL, with the built program: every command refuses it before it connects, with one sentence and
// exit code 78, and writes no part of the password.

import Foundation
import HTTP2TestSupport
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

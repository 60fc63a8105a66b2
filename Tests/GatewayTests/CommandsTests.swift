// The parts of the commands: reading lines, enqueueing calls, and the texts of --help.

import ArgumentParser
import Foundation
import Queue
import Runtime
import TestSupport
import Testing

@testable import Console
@testable import Gateway
@testable import Lab
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct CommandsTests {
  private static let good =
    #"{"app":"porteiro","payload":{"callId":"c1","from":"d"},"recipients":["u1"],"ringSeconds":30}"#

  // MARK: Lines

  @Test func `a line is read with its values unchanged`() throws {
    let line = try CallLine(Array(Self.good.utf8), number: 7)
    #expect(line.number == 7)
    #expect(line.app == Array("porteiro".utf8))
    #expect(String(decoding: line.payload, as: UTF8.self) == #"{"callId":"c1","from":"d"}"#)
    #expect(String(decoding: line.recipients, as: UTF8.self) == #"["u1"]"#)
    #expect(line.ringSeconds == 30)
    let short = try CallLine(Array(#"{"payload":{},"recipients":[]}"#.utf8), number: 1)
    #expect(short.app == nil && short.ringSeconds == nil)
  }

  private static let malformed: [(text: String, message: String)] = [
    (#"7"#, "must be a JSON object"), (#"{"payload" {}}"#, "not JSON: unexpected byte at byte 11"),
    (#"{"recipients":[]}"#, "payload is missing"), (#"{"payload":{}}"#, "recipients is missing"),
    (#"{"payload":[],"recipients":[]}"#, "payload must be an object"),
    (#"{"payload":{},"recipients":{}}"#, "recipients must be an array"),
    (#"{"payload":{},"recipients":[],"app":1}"#, "app must be a string"),
    (#"{"payload":{},"recipients":[],"ringSeconds":"60"}"#, "ringSeconds must be a whole number"),
    (#"{"payload":{},"recipients":[],"ringSeconds":99999999999}"#, "ringSeconds must be a whole number"),
    (#"{"payload":{},"recipients":[],"ring_seconds":60}"#, "unknown key ring_seconds; did you mean ringSeconds?"),
  ]

  @Test(arguments: malformed)
  func `a malformed line is refused with its number and its key`(text: String, message: String) {
    #expect(throws: CallLine.Fault(line: 3, message: message)) { try CallLine(Array(text.utf8), number: 3) }
  }

  @Test(arguments: [
    ("{", "ends within a JSON object; write each call in one line: jq -c . FILE | push-gateway enqueue -"),
    (
      #"  {"payload":"#, "ends within a JSON object; write each call in one line: jq -c . FILE | push-gateway enqueue -"
    ),
    ("[", "is an array; write one call a line: jq -c '.[]' FILE | push-gateway enqueue -"),
    ("[\(good)]", "is an array; write one call a line: jq -c '.[]' FILE | push-gateway enqueue -"),
  ])
  func `a file of another form is refused as a whole, with the command that converts it`(text: String, message: String)
  {
    #expect(throws: CallLine.Fault(line: 1, message: message, isOfFile: true)) {
      try CallLine(Array(text.utf8), number: 1)
    }
  }

  @Test func `a byte order mark before the first line is passed over`() throws {
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("lines-\(UUID())").path
    defer { try? FileManager.default.removeItem(atPath: path) }
    try "\u{FEFF}a\n\u{FEFF}b\n".write(toFile: path, atomically: true, encoding: .utf8)
    var reader = try LineReader(path: path)
    #expect(try reader.next() == Array("a".utf8))
    #expect(try reader.next() == Array("\u{FEFF}b".utf8))
  }

  @Test func `lines of any ending are read, and long ones over many reads`() throws {
    let long = String(repeating: "x", count: 200_000)
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("lines-\(UUID())").path
    defer { try? FileManager.default.removeItem(atPath: path) }
    try "a\r\n\n\(long)\nlast".write(toFile: path, atomically: true, encoding: .utf8)
    var reader = try LineReader(path: path)
    var lines: [String] = []
    while let line = try reader.next() { lines.append(String(decoding: line, as: UTF8.self)) }
    #expect(lines == ["a", "", long, "last"])
    #expect(try reader.next() == nil)
  }

  @Test func `a line that is too long is refused without being stored`() throws {
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("lines-\(UUID())").path
    defer { try? FileManager.default.removeItem(atPath: path) }
    try String(repeating: "x", count: 3 << 20).write(toFile: path, atomically: true, encoding: .utf8)
    var reader = try LineReader(path: path)
    #expect(throws: CommandFailure.self) { try reader.next() }
  }

  @Test func `a directory in place of a file of lines is named`() throws {
    let folder = FileManager.default.temporaryDirectory.path
    var reader = try LineReader(path: folder)
    let error = #expect(throws: CommandFailure.self) { try reader.next() }
    #expect(error?.description == "\(folder): Is a directory")
  }

  // MARK: Enqueueing

  private func line(_ number: Int, _ callID: String, from: String = #""d""#) throws -> CallLine {
    let text =
      #"{"payload":{"callId":"\#(callID)","from":\#(from)},"recipients":[{"userId":"u","fcmToken":"fcm-token-0123456789abcdef"}]}"#
    return try CallLine(Array(text.utf8), number: number)
  }

  @Test func `a batch is enqueued once, and when repeated contains only duplicates`() async throws {
    try await TestDatabase.with(.migrated) { database in
      let connection = try await database.connect()
      try await database.execute("select push.register_app('default', 60)")
      let enqueuer = CallEnqueuer(connection: connection)
      let lines = try (1...20).map { try line($0, "c\($0)") }
      #expect(try await enqueuer.enqueue(lines) == .init(calls: 20, deliveries: 20))
      #expect(try await enqueuer.enqueue(lines) == .init(duplicates: 20))
      let unreachable = try CallLine(
        Array(#"{"payload":{"callId":"n","from":"d"},"recipients":["nobody"]}"#.utf8), number: 1)
      #expect(try await enqueuer.enqueue([unreachable]) == .init(calls: 1, unreachable: 1))
      await connection.close()
    }
  }

  @Test func `nothing of a batch with faults is enqueued, and every faulty line is named`() async throws {
    try await TestDatabase.with(.migrated) { database in
      let connection = try await database.connect()
      try await database.execute("select push.register_app('default', 60)")
      let lines = try [
        line(11, "a"), line(12, "b", from: "7"), line(13, "c"), line(14, "", from: #""d""#),
      ]
      // The login of a backend. After harden.sql it may not create temporary tables.
      let name = try await database.value("select current_database()")
      try await database.execute("revoke temporary on database \(name) from public")
      try await connection.script("set role push_enqueuer")
      let error = await #expect(throws: LineFaults.self) {
        try await CallEnqueuer(connection: connection).enqueue(lines)
      }
      #expect(error?.faults.map(\.line) == [12, 14])
      #expect(error?.faults[0].message.contains("payload.from") == true)
      #expect(error?.faults[1].message.contains("payload.callId") == true)
      try await connection.script("reset role")
      let rows = try await connection.query(
        PostgresStatement(
          name: "t", sql: "select (select count(*) from push.outbox) + (select count(*) from push.delivery)"))
      #expect(rows.int64(0, 0) == 0)
      await connection.close()
    }
  }

  // MARK: Help

  @Test func `every command explains itself`() {
    let commands = PushGateway.configuration.subcommands + PushGatewayLab.configuration.subcommands
    for command in commands where command.configuration.shouldDisplay {
      #expect(!command.configuration.abstract.isEmpty)
      #expect(command.configuration.discussion.count > 100, "\(command)")
    }
  }

  @Test(arguments: ["simulate", "loadtest"]) func `the words that moved say where they went`(word: String) async throws
  {
    for arguments in [[word], [word, "--rate", "1"], [word, "--help"]] {
      let run = try await OperationsFixture.runGateway(arguments)
      #expect(run.status == 64)
      #expect(run.errors.contains("run `push-gateway-lab \(word)` with the same arguments"))
    }
  }

  @Test func `check-config --help lists every key there is`() {
    let help = PushGateway.helpMessage(for: CheckConfigCommand.self, columns: 200)
    for key in ConfigurationKey.all {
      #expect(
        help.contains(key.path.joined(separator: ".").replacing("*", with: key.path.first == "apps" ? "APP" : "NAME")))
    }
  }
}

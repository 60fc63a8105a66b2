// `status --watch` as a process: in a pipe, in a terminal, without a database, and until a signal ends it.

import Foundation
import Queue
import TestProcess
import TestSupport
import Testing

@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct OperationsCommandWatchTests {
  /// The running program, and its output so far.
  private final class Watch {
    let process: Process
    private let reading: FileHandle
    private(set) var text = ""

    /// - Parameter terminal: columns and rows of the program's terminal; nil: a pipe.
    init(
      _ database: TestDatabase, _ arguments: [String], terminal: (columns: UInt16, rows: UInt16)? = nil,
      environment: [String: String] = [:]
    ) throws {
      process = OperationsFixture.process(
        database.url, ["status", "--watch", "0.1"] + arguments, environment: environment)
      if let terminal {
        let (main, other) = try Self.openTerminal()
        var size = winsize(ws_row: terminal.rows, ws_col: terminal.columns, ws_xpixel: 0, ws_ypixel: 0)
        #expect(ioctl(other, UInt(TIOCSWINSZ), &size) == 0)
        reading = FileHandle(fileDescriptor: main, closeOnDealloc: true)
        let writing = FileHandle(fileDescriptor: other, closeOnDealloc: true)
        process.standardOutput = writing
        process.standardError = writing
      } else {
        let pipe = Pipe()
        process.standardOutput = pipe
        process.standardError = pipe
        reading = pipe.fileHandleForReading
      }
      try process.start()
    }

    /// The two ends of a pseudoterminal: the test's and the program's.
    private static func openTerminal() throws -> (main: Int32, other: Int32) {
      #if os(Linux)
      // Glibc does not offer posix_openpt and its relatives to Swift. These two requests do the same.
      let main = open("/dev/ptmx", O_RDWR | O_NOCTTY)
      var (unlocked, number) = (Int32(0), Int32(0))
      #expect(ioctl(main, UInt(0x4004_5431), &unlocked) == 0)  // TIOCSPTLCK
      #expect(ioctl(main, UInt(0x8004_5430), &number) == 0)  // TIOCGPTN
      let path = "/dev/pts/\(number)"
      #else
      let main = posix_openpt(O_RDWR | O_NOCTTY)
      #expect(grantpt(main) == 0 && unlockpt(main) == 0)
      let path = String(cString: ptsname(main))
      #endif
      let other = open(path, O_RDWR | O_NOCTTY)
      try #require(main >= 0 && other >= 0)
      return (main, other)
    }

    /// Reads until the output contains `part` this many times.
    func read(_ count: Int, of part: String) throws {
      while text.components(separatedBy: part).count <= count {
        let data = reading.availableData
        try #require(!data.isEmpty && text.utf8.count < 1 << 20, "no \(part) in: \(text.suffix(2_000))")
        text += String(decoding: data, as: UTF8.self)
      }
    }

    /// Sends a signal. Returns the exit status; nil if the signal killed the program.
    func end(by signal: Int32) -> Int32? {
      kill(process.processIdentifier, signal)
      process.waitUntilExit()
      return process.terminationReason == .exit ? process.terminationStatus : nil
    }

    deinit { if process.isRunning { process.terminate() } }
  }

  private static let heading = "push-gateway \(GatewayVersion.current), "

  @Test func `in a pipe, the status is repeated without escape sequences until SIGINT`() async throws {
    try await OperationsFixture.with { database in
      let watch = try Watch(database, [])
      try watch.read(3, of: Self.heading)
      #expect(watch.end(by: SIGINT) == 0)
      #expect(!watch.text.contains("\u{1B}"))
      #expect(watch.text.contains("\n\n\(Self.heading)"))
    }
  }

  @Test func `with --json every line is a document, until SIGTERM`() async throws {
    try await OperationsFixture.with { database in
      let watch = try Watch(database, ["--json"])
      try watch.read(3, of: "\n")
      #expect(watch.end(by: SIGTERM) == 0)
      for line in watch.text.split(separator: "\n").prefix(3) {
        let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
        #expect(object["at"] is String && (object["lanes"] as? [Any])?.count == 3)
      }
    }
  }

  @Test(arguments: [(UInt16(120), UInt16(60)), (40, 12), (20, 3)])
  func `in a terminal, the status is drawn in place, fits the rows, and the terminal is restored at the end`(
    columns: UInt16, rows: UInt16
  ) async throws {
    try await OperationsFixture.with { database in
      let watch = try Watch(database, [], terminal: (columns, rows))
      try watch.read(4, of: "\u{1B}[H")
      #expect(watch.end(by: SIGINT) == 0)
      try watch.read(1, of: "\u{1B}[?25h")
      #expect(watch.text.hasPrefix("\u{1B}[?25l\u{1B}[?7l\u{1B}[2J\u{1B}[H"))
      #expect(watch.text.hasSuffix("\u{1B}[?7h\u{1B}[?25h"))
      let frame = watch.text.components(separatedBy: "\u{1B}[H")[1]
      #expect(frame.filter { $0.isNewline }.count < rows)
      #expect(rows < 40 || frame.contains("\u{1B}[31mopen\u{1B}[0m"))
    }
  }

  @Test func `NO_COLOR turns colors off in a terminal`() async throws {
    try await OperationsFixture.with { database in
      let watch = try Watch(database, [], terminal: (120, 60), environment: ["NO_COLOR": "1"])
      try watch.read(2, of: "\u{1B}[H")
      #expect(watch.end(by: SIGINT) == 0)
      #expect(watch.text.contains("open") && !watch.text.contains("\u{1B}[31m"))
    }
  }

  @Test func `Ctrl-C ends the command while the database does not answer`() async throws {
    try await OperationsFixture.with { database in
      let watch = try Watch(database, [])
      try watch.read(1, of: Self.heading)
      let blocker = try await database.connect()
      try await blocker.script("begin; lock table push.delivery in access exclusive mode")
      let waits = """
        select exists (select from pg_stat_activity
          where datname = current_database() and application_name = 'push-gateway cli' and wait_event_type = 'Lock')
        """
      try await database.wait(for: waits)
      #expect(watch.end(by: SIGINT) == 0)
      await blocker.close()
    }
  }

  @Test func `a lost connection is reported and reopened`() async throws {
    try await OperationsFixture.with { database in
      let watch = try Watch(database, ["--json"])
      try watch.read(1, of: "\n")
      let ended = """
        select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and application_name = 'push-gateway cli'
        """
      #expect(try await database.value(ended) == "1")
      try watch.read(1, of: "try again")
      let before = watch.text.components(separatedBy: "stuck_count").count
      try watch.read(before + 1, of: "stuck_count")
      #expect(watch.end(by: SIGINT) == 0)
    }
  }
}

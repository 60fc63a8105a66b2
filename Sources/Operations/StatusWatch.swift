// `status --watch`: repeats the status until a signal ends it.

internal import Console
internal import Queue
internal import Runtime
internal import UnixSignals

/// Shows the status at an interval: in place on a terminal, one after the other in a file or pipe.
struct StatusWatch {
  let options: OperationsOptions
  let interval: Duration

  /// Returns at SIGINT or SIGTERM, also while the database does not answer.
  /// - Throws: `CommandFailure` if the first status fails. Later failures are shown and tried again.
  func run() async throws {
    let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm)
    let link = StatusLink(options: options)
    if draws { emit(Self.begin) }
    defer { if draws { emit(Self.end) } }
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask {
        for await _ in signals { break }
        await link.close()
      }
      group.addTask { try await show(link) }
      defer { group.cancelAll() }
      try await group.next()
    }
  }

  private var draws: Bool { Terminal.isInteractive && !options.json }

  private func show(_ link: StatusLink) async throws {
    var isFirst = true
    while !Task.isCancelled {
      do throws(CommandFailure) {
        let lines = try await link.status(width: draws ? Terminal.size?.columns : nil)
        show(lines, isFirst: isFirst)
      } catch {
        if await link.isClosed { return }
        if isFirst || !error.isTransient { throw error }
        if draws {
          show([error.description, "Trying again."], isFirst: false)
        } else {
          StandardError.write(error.description)
        }
      }
      isFirst = false
      // Only a cancelled sleep throws.
      do { try await Task.sleep(for: interval) } catch { return }
    }
  }

  private func show(_ lines: [String], isFirst: Bool) {
    if draws {
      emit(Self.frame(lines, rows: Terminal.size?.rows ?? 24))
    } else {
      // Texts are separated by an empty line; each JSON document is one line.
      StandardOutput.write(((isFirst || options.json ? [] : [""]) + lines).joined(separator: "\n"))
    }
  }

  // MARK: - Terminal

  /// Lines that overwrite the previous output. Each clears the rest of its line, and the last one everything below it.
  /// Lines that do not fit are counted.
  static func frame(_ lines: [String], rows: Int) -> String {
    let room = max(1, rows - 1)
    let shown =
      lines.count <= room ? lines[...] : lines.prefix(room - 1) + ["(\(lines.count - room + 1) more lines)"]
    return "\u{1B}[H" + shown.map { $0 + "\u{1B}[K\n" }.joined() + "\u{1B}[J"
  }

  /// Turns off cursor and line wrap, and clears the screen. `end` restores both, below the last output.
  private static let begin = "\u{1B}[?25l\u{1B}[?7l\u{1B}[2J"
  private static let end = "\u{1B}[?7h\u{1B}[?25h"

  private func emit(_ text: String) { StandardOutput.write(text, terminator: "") }
}

/// The connection of the command, which is reopened after a loss.
private actor StatusLink {
  private let options: OperationsOptions
  private let loop = EventLoop(name: "postgres")
  private var connection: PostgresConnection?
  private(set) var isClosed = false

  init(options: OperationsOptions) {
    self.options = options
  }

  /// The status as lines of text, or as one line of JSON.
  func status(width: Int?) async throws(CommandFailure) -> [String] {
    let connection = try await open()
    do throws(PostgresError) {
      if options.json { return [try await StatusReport.json(on: connection)] }
      return try await StatusReport.fetch(on: connection).lines(width: width, isColored: Terminal.isColored)
    } catch {
      if error.isTransient { await drop() }
      throw CommandFailure(error)
    }
  }

  /// Closes the connection. A statement in progress fails.
  func close() async {
    isClosed = true
    await drop()
  }

  private func open() async throws(CommandFailure) -> PostgresConnection {
    if let connection { return connection }
    let made = try await options.database.connect(as: OperationsOptions.applicationName, on: loop)
    connection = made
    return made
  }

  private func drop() async {
    let lost = connection
    connection = nil
    await lost?.close()
  }
}

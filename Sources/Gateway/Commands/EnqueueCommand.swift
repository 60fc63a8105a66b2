// `push-gateway enqueue FILE`: enqueues calls from JSON lines.

import ArgumentParser
import Console
import Queue
import Runtime

struct EnqueueCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "enqueue",
    abstract: "Enqueue calls from a file of JSON lines.",
    discussion: """
      One call a line:

        {"app": "porteiro",
         "payload": {"callId": "7d4e3a52-…", "from": "doorman-1", "fromName": "Portaria", "channelName": "call-101"},
         "recipients": ["user-1", {"userId": "user-2", "voipPushToken": "<hex>"}, {"userId": "user-3", "fcmToken": "…"}],
         "ringSeconds": 60}

      (in one line; app and ringSeconds are optional). A recipient is a user id, which stands for the user's devices in push.devices, \
      or an object with tokens: voipPushToken, fcmToken, pushToken (Expo), webPushSubscription, with platform, environment and locale if known.

      Each batch of lines is enqueued completely or not at all. At the first batch with an error the command stops, names every \
      invalid line of the batch and the last line that was enqueued, and exits with 1. Lines that were enqueued before count as \
      duplicates, so the corrected file can be given again.

      Needs only the database: DATABASE_URL, or the key database of the configuration.
      """)

  @Argument(help: "A file, or - for standard input.")
  var file: String

  @Option(help: "Number of lines in a batch, 1 to 10000.")
  var batch = 500

  @OptionGroup var database: DatabaseOptions

  func validate() throws {
    guard 1...10_000 ~= batch else { throw ValidationError("--batch must be from 1 to 10000") }
  }

  func run() async throws {
    var reader = try LineReader(path: file)
    let connection = try await database.connect(as: "enqueue")
    let enqueuer = CallEnqueuer(connection: connection)
    var progress = Progress()
    do {
      while let lines = try Self.nextBatch(of: batch, &reader, &progress) {
        progress.add(try await enqueuer.enqueue(lines))
      }
    } catch {
      await connection.close()
      StandardError.write("\(error)")
      throw CommandFailure(progress.summary(failed: true))
    }
    await connection.close()
    StandardOutput.write(progress.summary(failed: false))
  }

  /// The next lines, up to `count`; nil at the end. If lines are malformed, the error names every one of the batch.
  private static func nextBatch(
    of count: Int, _ reader: inout LineReader, _ progress: inout Progress
  ) throws -> [CallLine]? {
    var lines: [CallLine] = []
    var faults: [CallLine.Fault] = []
    while lines.count + faults.count < count, let text = try reader.next() {
      progress.read += 1
      if text.allSatisfy({ $0 == 0x20 || $0 == 0x09 }) { continue }
      do throws(CallLine.Fault) {
        lines.append(try CallLine(text, number: progress.read))
      } catch {
        if error.isOfFile { throw LineFaults(faults: [error]) }
        faults.append(error)
      }
    }
    if !faults.isEmpty { throw LineFaults(faults: faults) }
    return lines.isEmpty ? nil : lines
  }

  /// How much of the file is enqueued.
  private struct Progress {
    var read = 0
    private var enqueuedUpTo = 0
    private var totals = CallEnqueuer.Totals()
    private var reportedAt = SystemClock().now()

    mutating func add(_ batch: CallEnqueuer.Totals) {
      enqueuedUpTo = read
      totals.calls += batch.calls
      totals.deliveries += batch.deliveries
      totals.duplicates += batch.duplicates
      totals.unreachable += batch.unreachable
      let now = SystemClock().now()
      guard now - reportedAt > .seconds(1) else { return }
      reportedAt = now
      StandardError.write("\(totals.calls) calls enqueued")
    }

    private static func count(_ number: Int, _ noun: String) -> String { "\(number) \(noun)\(number == 1 ? "" : "s")" }

    func summary(failed: Bool) -> String {
      var text = "enqueued \(Self.count(totals.calls, "call")) for \(Self.count(totals.deliveries, "device"))"
      if totals.duplicates > 0 { text += ", \(totals.duplicates) were enqueued before" }
      if totals.unreachable > 0 { text += "; \(Self.count(totals.unreachable, "call")) without any device" }
      guard failed else { return text }
      if enqueuedUpTo == 0 { return "nothing was enqueued" }
      return text + ": lines 1 to \(enqueuedUpTo), and none of the following lines"
    }
  }
}

// The progress of a load test: a bar on a terminal, else a line from time to time. Written to standard error, so that
// standard output contains only the result.

internal import Console
internal import Foundation
internal import Runtime
internal import Synchronization

/// A moment of a run.
struct LoadProgress: Equatable, Sendable {
  /// Nil if it is not known in advance.
  var planned: Int?
  var enqueued: Int
  /// nil if no simulator's log is read.
  var received: Int?
  var settled: Int
  /// Microseconds.
  var p50: Int64
  var p99: Int64
  var max: Int64

  /// Committed and not settled yet.
  var inFlight: Int { Swift.max(0, enqueued - settled) }

  /// - Parameter rate: recent number of deliveries settled a second.
  func text(elapsed: Double, rate: Double) -> String {
    let latency =
      settled == 0
      ? ""
      : "  p50 \(LatencyHistogram.text(p50))  p99 \(LatencyHistogram.text(p99))  max \(LatencyHistogram.text(max))"
    return
      "\(HumanDuration.text(seconds: elapsed))  \(settled) of \(planned ?? enqueued) settled, \(Int(rate.rounded()))/s  "
      + "\(inFlight) in flight\(latency)"
  }

  /// `[######----------]  41 %`
  func bar(width: Int) -> String {
    let planned = planned ?? enqueued
    let share = planned == 0 ? 0 : min(1, Double(settled) / Double(planned))
    let filled = Int(share * Double(width))
    let cells = String(repeating: "#", count: filled) + String(repeating: "-", count: width - filled)
    return "[\(cells)] \(Int(share * 100)) %"
  }
}

/// Shows the progress.
final class LoadProgressDisplay: Sendable {
  private struct State {
    /// Pairs (seconds from the start, settled) of the last two seconds.
    var recent: [(time: Double, settled: Int)] = []
    var shownAt = -Double.infinity
  }

  private static let barWidth = 20
  /// Seconds between lines where there is no terminal.
  private static let lineInterval = 5.0
  private let draws = isatty(STDERR_FILENO) == 1
  private let start = SystemClock().now()
  private let state = Mutex(State())

  func show(_ progress: LoadProgress) {
    let elapsed = (SystemClock().now() - start).seconds
    let text: String? = state.withLock { state in
      state.recent.append((elapsed, progress.settled))
      while state.recent.count > 2, state.recent[0].time < elapsed - 2 { state.recent.removeFirst() }
      guard draws || elapsed - state.shownAt >= Self.lineInterval else { return nil }
      state.shownAt = elapsed
      let first = state.recent[0]
      let rate = elapsed > first.time ? Double(progress.settled - first.settled) / (elapsed - first.time) : 0
      return progress.text(elapsed: elapsed, rate: rate)
    }
    guard let text else { return }
    if draws {
      let columns = Terminal.size?.columns ?? 120
      write("\r" + "\(progress.bar(width: Self.barWidth))  \(text)".prefix(columns - 1) + "\u{1B}[K")
    } else {
      write(text + "\n")
    }
  }

  /// Clears the line for other output.
  func end() {
    if draws { write("\r\u{1B}[K") }
  }

  private func write(_ text: String) { FileHandle.standardError.write(Data(text.utf8)) }
}

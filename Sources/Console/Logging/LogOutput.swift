// Writes log lines on a thread of its own. Logging only appends to memory, because a reader that has stopped reading (a
// full pipe, a stuck collector) must not keep a phone from ringing.

import Dispatch
import Runtime
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// Writes lines to a descriptor, in order, on a thread of its own.
package final class LogOutput: Sendable {
  /// How long a line waits for others. Under load, hundreds of lines are written at once.
  private static let pauseMilliseconds = 5

  /// Maximum number of bytes that wait to be written. Further lines are lost; their number is logged as soon as there
  /// is room.
  package static let waitingMaxBytes = 4 << 20

  /// Maximum size of one write. A reader that accepts it has not stopped reading.
  private static let chunkBytes = 16 << 10

  private struct State {
    var waiting: [UInt8] = []
    var lost = 0
    /// Whether a write is scheduled.
    var isPlanned = false
    /// Whether further lines are ignored.
    var isClosed = false
    /// Number of bytes written so far.
    var writtenBytes = 0
  }

  private let descriptor: Int32
  private let waitingMaxBytes: Int
  private let noteOfLost: @Sendable (Int) -> [UInt8]
  private let state = Mutex(State())
  private let queue = DispatchQueue(label: "push-gateway.log")

  /// - Parameters:
  ///   - descriptor: the file descriptor, which the caller closes.
  ///   - noteOfLost: makes the line that reports how many lines were lost.
  package init(
    descriptor: Int32 = STDERR_FILENO, waitingMaxBytes: Int = LogOutput.waitingMaxBytes,
    noteOfLost: @escaping @Sendable (Int) -> [UInt8]
  ) {
    self.descriptor = descriptor
    self.waitingMaxBytes = waitingMaxBytes
    self.noteOfLost = noteOfLost
  }

  /// Number of bytes written so far.
  package var writtenBytes: Int { state.withLock { $0.writtenBytes } }

  /// Appends a line, including its line break. Never waits.
  package func write(_ line: [UInt8]) {
    let isFirst = state.withLock { state in
      guard !state.isClosed else { return false }
      guard state.waiting.count + line.count <= waitingMaxBytes else {
        state.lost += 1
        return false
      }
      state.waiting += line
      defer { state.isPlanned = true }
      return !state.isPlanned
    }
    if isFirst { queue.asyncAfter(deadline: .now() + .milliseconds(Self.pauseMilliseconds)) { self.drain() } }
  }

  /// Returns when every line logged so far is written, or when nothing could be written for `seconds`.
  package func flush(seconds: Int = 2) {
    let isDone = DispatchSemaphore(value: 0)
    queue.async {
      self.drain()
      isDone.signal()
    }
    var written = writtenBytes
    while isDone.wait(timeout: .now() + .seconds(seconds)) == .timedOut {
      let now = writtenBytes
      if now == written { return }
      written = now
    }
  }

  /// Flushes, and ignores further lines. Must be called before the process exits, because a line that another thread is
  /// writing at that moment could be truncated.
  package func close(seconds: Int = 5) {
    state.withLock { $0.isClosed = true }
    flush(seconds: seconds)
  }

  /// Writes what waits. Lines that arrive during the write schedule another one.
  private func drain() {
    if let bytes = dequeue() { writeAll(bytes) }
  }

  private func dequeue() -> [UInt8]? {
    let (bytes, lost): ([UInt8], Int) = state.withLock { state in
      defer { (state.waiting, state.lost, state.isPlanned) = ([], 0, false) }
      return (state.waiting, state.lost)
    }
    if bytes.isEmpty, lost == 0 { return nil }
    return lost == 0 ? bytes : bytes + noteOfLost(lost)
  }

  /// Writes all bytes, in several writes if necessary. What cannot be written at all is dropped.
  private func writeAll(_ bytes: [UInt8]) {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = unsafe rest.withUnsafeBytes { buffer in
        #if canImport(Glibc)
        unsafe Glibc.write(descriptor, buffer.baseAddress, min(buffer.count, Self.chunkBytes))
        #else
        unsafe Darwin.write(descriptor, buffer.baseAddress, min(buffer.count, Self.chunkBytes))
        #endif
      }
      if count > 0 {
        rest = rest.dropFirst(count)
        state.withLock { $0.writtenBytes += count }
      } else if count < 0, errno == EAGAIN {
        var wanted = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        _ = unsafe poll(&wanted, 1, -1)
      } else if count == 0 || errno != EINTR {
        return
      }
    }
  }
}

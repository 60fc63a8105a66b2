// A pipe for log lines, read on a thread of its own: tests share few threads, and none of them may wait for another.

import Foundation

/// What is written to `descriptor` until `text` is asked for.
final class LogPipe: Sendable {
  private let pipe = Pipe()
  private let chunks: AsyncStream<Data>
  private let continuation: AsyncStream<Data>.Continuation

  init() {
    (chunks, continuation) = AsyncStream.makeStream()
  }

  var descriptor: Int32 { pipe.fileHandleForWriting.fileDescriptor }

  /// Begins to read; until then a full pipe stays full.
  func read() {
    Thread.detachNewThread { [reader = pipe.fileHandleForReading, continuation] in
      continuation.yield(reader.readDataToEndOfFile())
      continuation.finish()
    }
  }

  /// Closes the writing end, and returns all that was written.
  func text() async throws -> String {
    try pipe.fileHandleForWriting.close()
    return String(decoding: await chunks.first { _ in true } ?? Data(), as: UTF8.self)
  }
}

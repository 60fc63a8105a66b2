// A pipe for log lines. It is read on a thread of its own, because tests share few threads and must not block them.

import Foundation

/// Collects what is written to `descriptor`.
final class LogPipe: Sendable {
  private let pipe = Pipe()
  private let chunks: AsyncStream<Data>
  private let continuation: AsyncStream<Data>.Continuation

  init() {
    (chunks, continuation) = AsyncStream.makeStream()
  }

  var descriptor: Int32 { pipe.fileHandleForWriting.fileDescriptor }

  /// Begins to read. Before that, a full pipe stays full.
  func read() {
    Thread.detachNewThread { [reader = pipe.fileHandleForReading, continuation] in
      continuation.yield(reader.readDataToEndOfFile())
      continuation.finish()
    }
  }

  /// Closes the writing end, and returns everything that was written.
  func text() async throws -> String {
    try pipe.fileHandleForWriting.close()
    return String(decoding: await chunks.first { _ in true } ?? Data(), as: UTF8.self)
  }
}

// Log lines through a real pipe: their order, a reader that has stopped, and a threshold that moves.

import Foundation
import Logging
import Runtime
import Testing

@testable import Console
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct LogOutputTests {
  @Test func `lines of many threads are written whole, and in order for each thread`() async throws {
    let pipe = LogPipe()
    pipe.read()
    let output = LogOutput(descriptor: pipe.descriptor) { _ in [] }
    await withTaskGroup(of: Void.self) { writers in
      for writer in 0..<8 {
        writers.addTask { for line in 0..<2_000 { output.write(Array("\(writer) \(line)\n".utf8)) } }
      }
    }
    output.flush(seconds: 60)
    let lines = try await pipe.text().split(separator: "\n")
    #expect(lines.count == 16_000)
    for writer in 0..<8 {
      let own = lines.filter { $0.hasPrefix("\(writer) ") }.map { Int($0.dropFirst(2)) }
      #expect(own == Array(0..<2_000))
    }
  }

  @Test func `a reader that does not read delays nobody, and lost lines are counted`() async throws {
    let pipe = LogPipe()
    let line = Array((String(repeating: "x", count: 999) + "\n").utf8)
    let output = LogOutput(descriptor: pipe.descriptor, waitingMaxBytes: 100_000) { Array("lost \($0)\n".utf8) }
    let count = 5_000
    for _ in 0..<count { output.write(line) }  // would never return if it waited for the pipe
    pipe.read()
    output.flush(seconds: 60)
    let lines = try await pipe.text().split(separator: "\n")
    let lost = lines.compactMap { $0.hasPrefix("lost ") ? Int($0.dropFirst(5)) : nil }.reduce(0, +)
    let whole = lines.count { $0.count == 999 }
    #expect(lost > count / 2)
    #expect(whole + lost == count)
  }

  @Test func `a closed output ignores further lines, so that the end of the process truncates none`() async throws {
    let pipe = LogPipe()
    pipe.read()
    let output = LogOutput(descriptor: pipe.descriptor) { _ in [] }
    output.write(Array("before\n".utf8))
    output.close(seconds: 60)
    output.write(Array("after\n".utf8))
    output.flush(seconds: 60)
    #expect(try await pipe.text() == "before\n")
  }

  @Test func `a slow reader gets every line, as long as it reads`() async throws {
    let pipe = Pipe()
    let output = LogOutput(descriptor: pipe.fileHandleForWriting.fileDescriptor) { _ in [] }
    let line = Array((String(repeating: "x", count: 999) + "\n").utf8)
    let bytes = 1_000_000
    for _ in 0..<bytes / line.count { output.write(line) }
    Thread.detachNewThread { [reader = pipe.fileHandleForReading] in
      // Altogether 12 s, longer than `close` waits without progress.
      var left = bytes
      while left > 0 {
        Thread.sleep(forTimeInterval: 0.75)
        guard let part = try? reader.read(upToCount: 65_536), !part.isEmpty else { return }
        left -= part.count
      }
    }
    // Not on one of the few threads of Swift's tasks, which other tests need.
    await withCheckedContinuation { done in
      Thread.detachNewThread {
        output.close(seconds: 10)
        done.resume()
      }
    }
    #expect(output.writtenBytes == bytes)
  }

  @Test func `a closed reader does not end the process`() throws {
    signal(SIGPIPE, SIG_IGN)
    let pipe = Pipe()
    try pipe.fileHandleForReading.close()
    let output = LogOutput(descriptor: pipe.fileHandleForWriting.fileDescriptor) { _ in [] }
    output.write(Array("gone\n".utf8))
    output.flush()
    output.write(Array("gone\n".utf8))
    output.flush()
  }

  @Test func `one threshold applies to all loggers, and a logger's own level can only be higher`() async throws {
    let pipe = LogPipe()
    pipe.read()
    let threshold = LogThreshold(.info)
    let sink = GatewayLogHandler.Sink(
      format: .text, threshold: threshold, output: LogOutput(descriptor: pipe.descriptor) { _ in [] }, now: { 0 })
    let logger = Logger(label: "a") { _ in GatewayLogHandler(sink) }
    var quiet = logger
    quiet.logLevel = .warning
    logger.debug("1")
    threshold.level = .debug
    logger.debug("2")
    quiet.info("3")
    quiet.warning("4")
    threshold.level = .error
    quiet.warning("5")
    logger.error("6")
    sink.output.flush(seconds: 60)
    let lines = try await pipe.text().split(separator: "\n")
    #expect(lines.map { $0.split(separator: " ").last ?? "" } == ["2", "4", "6"])
  }
}

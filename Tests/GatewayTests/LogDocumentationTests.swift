// Compares docs/logging.md with the sources: every message and key is documented, and every message is static.

import Foundation
import Testing

@Suite struct LogDocumentationTests {
  private static let root = URL(fileURLWithPath: #filePath).appending(path: "../../..").standardized

  /// The text of every call of a logger in the sources of the service, from the method's name to the end of the
  /// arguments.
  private static func calls() throws -> [(file: String, text: String)] {
    var calls: [(String, String)] = []
    let files = try #require(
      FileManager.default.enumerator(at: root.appending(path: "Sources"), includingPropertiesForKeys: nil))
    for case let file as URL in files where file.pathExtension == "swift" && !file.path.contains("/Simulators/") {
      let source = try String(contentsOf: file, encoding: .utf8)
      let starts =
        source.matches(of: /ogger\.(?:trace|debug|info|notice|warning|error|critical)\(/).map(\.range)
        // Lines that a machine emits for its driver to log.
        + source.matches(of: /(?:\blog\(\s*|orLog: )\.(?:debug|info|notice|warning|error|critical),/).map(
          \.range)
      for range in starts {
        var depth = 1
        let text = source[range.upperBound...].prefix { character in
          if character == "(" { depth += 1 }
          if character == ")" { depth -= 1 }
          return depth > 0
        }
        calls.append((file.lastPathComponent, String(text)))
      }
    }
    return calls
  }

  @Test func `every message is static and documented`() throws {
    let page = try String(contentsOf: Self.root.appending(path: "docs/logging.md"), encoding: .utf8)
    let calls = try Self.calls()
    #expect(calls.count > 25)
    for call in calls {
      let message = try #require(call.text.firstMatch(of: /^\s*"([^"]*)"/)?.1, "\(call.file): \(call.text)")
      #expect(!message.contains("\\("), "\(call.file): the message is made anew each time: \(message)")
      #expect(page.contains("| \(message) |"), "\(call.file): docs/logging.md lacks: \(message)")
    }
  }

  @Test func `numbers and booleans are not logged as strings`() throws {
    let keys =
      #/"(?:ambiguous|attempts|claim|claimed|connection|count|dead|delivered|expired|in_a_row|is_connected|is_lost|key_id|lost_leases|ms|n|outbox_id|parked|paused|released|rows|seconds|skew_seconds|status|streams_max|\w+_connections_max)": "/#
    for call in try Self.calls() { #expect(call.text.firstMatch(of: keys) == nil, "\(call.file): \(call.text)") }
  }

  @Test func `every key is documented`() throws {
    let page = try String(contentsOf: Self.root.appending(path: "docs/logging.md"), encoding: .utf8)
    let logging = try String(
      contentsOf: Self.root.appending(path: "Sources/Dispatching/Machine/DeliveryMetadata.swift"), encoding: .utf8)
    var keys = Set(
      logging.matches(of: #/"([a-z_]+)": |self\["([a-z_]+)"\]/#).compactMap { ($0.1 ?? $0.2).map(String.init) })
    for call in try Self.calls() {
      keys.formUnion(call.text.matches(of: #/"([a-z_]+)": /#).map { String($0.1) })
    }
    #expect(keys.isSuperset(of: ["call_id", "outcome", "trace_id", "reason", "app"]))
    for key in keys.sorted() { #expect(page.contains("| `\(key)` |"), "docs/logging.md lacks the key \(key)") }
  }
}

// The results of the hostile suite, in the form of the table at the beginning of docs/reliability.md.

import Foundation
import HTTP2TestSupport
import Synchronization

/// The rows of all tests of a run.
enum HostileTable {
  struct Row: Sendable {
    var behaviour: HostileBehaviour
    /// Seconds, by provider.
    var seconds: [ScriptedPeer.Provider: Double]
  }

  /// Seconds added to the time limits, which are meant for an idle machine. On any other the outcomes count: a call rings for 30 s.
  static var slack: Double { isStrict ? 0 : 30 }
  /// Further requests that a push may cost: a busy machine hedges what an idle one answers in time.
  static var furtherRequests: Int { isStrict ? 0 : 1 }
  /// Further attempts: what has no answer for 1.2 s, which a busy machine may take, is handed on.
  static var furtherAttempts: Int { isStrict ? 0 : 2 }
  /// Whether the time limits apply without an addition (`make test-hostile`).
  static var isStrict: Bool { ProcessInfo.processInfo.environment["PUSH_GATEWAY_HOSTILE"] == "1" }
  /// If set, only behaviours with this text in their names run.
  static var filter: String? { ProcessInfo.processInfo.environment["PUSH_GATEWAY_HOSTILE_ONLY"] }

  /// Prints rows, and appends them to the file of PUSH_GATEWAY_HOSTILE_TABLE.
  static func print(_ rows: [Row]) {
    let text = rows.map(line).joined(separator: "\n") + "\n"
    FileHandle.standardOutput.write(Data(text.utf8))
    guard let path = ProcessInfo.processInfo.environment["PUSH_GATEWAY_HOSTILE_TABLE"] else { return }
    if !FileManager.default.fileExists(atPath: path) {
      _ = FileManager.default.createFile(atPath: path, contents: nil)
    }
    guard let file = FileHandle(forWritingAtPath: path) else { return }
    file.seekToEndOfFile()
    file.write(Data(text.utf8))
    try? file.close()
  }

  /// `| behaviour | phone | bound | APNs | FCM | Expo |`
  private static func line(_ row: Row) -> String {
    let bounds = Set(row.behaviour.providers.map { row.behaviour.expectation($0).within }).sorted()
    let bound = bounds.map { "\(number($0)) s" }.joined(separator: ", ")
    let measured = ScriptedPeer.Provider.allCases.map { row.seconds[$0].map(duration) ?? "" }
    return "| \(row.behaviour.name) | \(row.behaviour.phone) | \(bound) | \(measured.joined(separator: " | ")) |"
  }

  private static func number(_ value: Double) -> String {
    String(format: value == value.rounded() ? "%.0f" : "%.1f", value)
  }

  private static func duration(_ seconds: Double) -> String {
    seconds < 1 ? String(format: "%.0f ms", seconds * 1000) : String(format: "%.2f s", seconds)
  }
}

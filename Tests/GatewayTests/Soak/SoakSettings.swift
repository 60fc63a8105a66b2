// How large the soak tests are: `make soak-providers` runs them all, and every size is an environment variable.

import Foundation
import Testing

/// Sizes from the environment; the defaults are those of the acceptance.
enum SoakSettings {
  /// Soak tests run only when asked for: they take minutes.
  static let isOn = environment["PUSH_GATEWAY_SOAK"] == "1"
  /// Invites with answers and cancels, over three providers.
  static let invites = number("PUSH_GATEWAY_SOAK_INVITES", 10_000)
  /// Their ring window, seconds.
  static let ringSeconds = number("PUSH_GATEWAY_SOAK_RING_SECONDS", 30)
  /// The longest stall, seconds.
  static let stallSeconds = number("PUSH_GATEWAY_SOAK_STALL_SECONDS", 120)
  /// Pushes under GOAWAY, and how many lie between two of them.
  static let pushes = number("PUSH_GATEWAY_SOAK_PUSHES", 50_000)
  static let goAwayEvery = number("PUSH_GATEWAY_SOAK_GOAWAY_EVERY", 500)
  /// How long a provider hangs, seconds.
  static let hangSeconds = number("PUSH_GATEWAY_SOAK_HANG_SECONDS", 60)
  /// Where random choices begin: the same seed chooses the same calls.
  static let seed = number("PUSH_GATEWAY_SOAK_SEED", 1)

  private static var environment: [String: String] { ProcessInfo.processInfo.environment }

  private static func number(_ name: String, _ standard: Int) -> Int {
    guard let text = environment[name] else { return standard }
    guard let number = Int(text), number > 0 else { fatalError("\(name) must be a whole number above 0") }
    return number
  }
}

/// One line of what was measured, at once: somebody may be watching.
func report(_ line: String) { FileHandle.standardOutput.write(Data("soak: \(line)\n".utf8)) }

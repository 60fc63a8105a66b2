// The sizes of the soak tests. `make soak-providers` runs all of them; each size can be set by an environment variable.

import Foundation
import Testing

/// Sizes from the environment. The defaults are those of the acceptance test.
enum SoakSettings {
  /// Soak tests run only if this variable is set, because they take minutes.
  static let isOn = environment["PUSH_GATEWAY_SOAK"] == "1"
  /// Number of invites with answers and cancels, over three providers.
  static let invites = number("PUSH_GATEWAY_SOAK_INVITES", 10_000)
  /// The ring window of these invites, in seconds.
  static let ringSeconds = number("PUSH_GATEWAY_SOAK_RING_SECONDS", 30)
  /// The longest stall, in seconds.
  static let stallSeconds = number("PUSH_GATEWAY_SOAK_STALL_SECONDS", 120)
  /// Number of pushes under GOAWAY, and number of pushes between two GOAWAY frames.
  static let pushes = number("PUSH_GATEWAY_SOAK_PUSHES", 50_000)
  static let goAwayEvery = number("PUSH_GATEWAY_SOAK_GOAWAY_EVERY", 500)
  /// How long a provider hangs, in seconds.
  static let hangSeconds = number("PUSH_GATEWAY_SOAK_HANG_SECONDS", 60)
  /// The seed of random choices: the same seed chooses the same calls.
  static let seed = number("PUSH_GATEWAY_SOAK_SEED", 1)

  private static var environment: [String: String] { ProcessInfo.processInfo.environment }

  private static func number(_ name: String, _ standard: Int) -> Int {
    guard let text = environment[name] else { return standard }
    guard let number = Int(text), number > 0 else { fatalError("\(name) must be a whole number above 0") }
    return number
  }
}

/// Prints one line of results at once, without buffering.
func report(_ line: String) { FileHandle.standardOutput.write(Data("soak: \(line)\n".utf8)) }

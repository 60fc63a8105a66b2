// Random inputs of tests that can be had again.

import Foundation
import Runtime

/// Where the random inputs of this run begin: `PUSH_GATEWAY_TEST_SEED`, or 1.
public enum TestSeed {
  public static let value: UInt64 = {
    let given = ProcessInfo.processInfo.environment["PUSH_GATEWAY_TEST_SEED"] ?? "1"
    guard let seed = UInt64(given) else { fatalError("PUSH_GATEWAY_TEST_SEED is no whole number: \(given)") }
    print("Random inputs come from PUSH_GATEWAY_TEST_SEED=\(seed)")
    return seed
  }()

  /// What an expectation about random inputs says when it fails.
  public static var comment: String { "PUSH_GATEWAY_TEST_SEED=\(value)" }

  /// - Parameter test: another number for each test, so that no two draw the same.
  public static func generator(_ test: UInt64) -> SplitMix64 {
    var seeds = SplitMix64(seed: value)
    return SplitMix64(seed: seeds.next() ^ test)
  }
}

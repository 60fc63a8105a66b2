// Tokens at whose pushes the provider fails, while it works for all others.
//
// Only some seeds have them, and these have no other faults. So every other ring is owed in time.

import Providers
import Runtime

/// The bad tokens of a seed, and what each of them does.
final class BadTokens {
  /// Maximum number of bad tokens of a lane.
  private static let most = 3
  /// The same where there are many in the lanes of Expo: as many as it takes requests at a time.
  private static let many = 6
  private static let choices: [PathIllness] = [.silent, .closing, .refusing, .ill, .throttling]
  private static let choicesOfMany: [PathIllness] = [.silent, .silent, .silent, .ill, .closing]

  private struct Phone: Hashable {
    var lane: Int16
    var token: String
  }

  private var random: SplitMix64
  private var lanesOfMany: Set<Int16> = []
  /// How many more there are, by lane.
  private var left: [Int16: Int] = [:]
  private var bad: [Phone: PathIllness] = [:]
  private var good: Set<Phone> = []

  /// Whether a seed has bad tokens.
  static func exist(_ seed: UInt64) -> Bool { seed % 16 == 10 }

  /// Whether a seed has many in the lanes of Expo, and messages of Expo share requests.
  static func areMany(_ seed: UInt64) -> Bool { seed % 64 == 42 }

  init(_ seed: UInt64, lanes: [SimulatedLane]) {
    // Draws of their own, so that other seeds stay as they are.
    random = SplitMix64(seed: seed &* 0x9E37_79B9_7F4A_7C15)
    guard Self.exist(seed), !IdleConnection.areForgotten(seed) else { return }
    let lanesOfMany = Self.areMany(seed) ? Set(lanes.filter { $0.provider == .expo }.map(\.id)) : []
    self.lanesOfMany = lanesOfMany
    for lane in lanes {
      left[lane.id] = lanesOfMany.contains(lane.id) ? random.count(3...Self.many) : random.count(0...Self.most)
    }
  }

  /// What the provider does at a push to this token; nil if it works.
  func illness(of token: String, lane: Int16) -> PathIllness? {
    guard !left.isEmpty else { return nil }
    let phone = Phone(lane: lane, token: token)
    if let illness = bad[phone] { return illness }
    guard !good.contains(phone) else { return nil }
    guard left[lane, default: 0] > 0, random.chance(0.4) else {
      good.insert(phone)
      return nil
    }
    left[lane, default: 0] -= 1
    bad[phone] = random.pick(lanesOfMany.contains(lane) ? Self.choicesOfMany : Self.choices)
    return bad[phone]
  }
}

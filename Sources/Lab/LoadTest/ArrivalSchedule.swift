// The arrival times of an open-loop load. They are fixed before the first call is sent, so a slow system gets the full
// load.

import ArgumentParser
import Foundation
import Runtime

/// A part of a load with a rate of its own: `2m@50` is 50 calls a second for two minutes.
struct ArrivalStage: Equatable, Sendable {
  static let rateMax = 100_000.0
  static let durationMax = Nanoseconds.seconds(86_400)

  /// Calls a second on average; 0 is a pause.
  var rate: Double
  var duration: Nanoseconds

  init(rate: Double, duration: Nanoseconds) {
    (self.rate, self.duration) = (rate, duration)
  }
}

extension ArrivalStage: ExpressibleByArgument {
  init?(argument: String) {
    let sides = argument.split(separator: "@", omittingEmptySubsequences: false)
    guard sides.count == 2, let duration = LoadDuration(sides[0])?.nanoseconds, let rate = Double(sides[1]),
      duration > .zero, duration <= Self.durationMax, 0...Self.rateMax ~= rate
    else { return nil }
    self.init(rate: rate, duration: duration)
  }
}

/// A Poisson process: calls arrive independently of each other, on average at the rate of the stage.
struct ArrivalSchedule: Sequence, Sendable {
  /// In order, without gaps.
  var stages: [ArrivalStage]
  var seed: UInt64

  init(stages: [ArrivalStage], seed: UInt64) {
    (self.stages, self.seed) = (stages, seed)
  }

  init(rate: Double, duration: Nanoseconds, seed: UInt64) {
    self.init(stages: [ArrivalStage(rate: rate, duration: duration)], seed: seed)
  }

  /// Number of calls on average.
  var expectedCount: Double { stages.reduce(0) { $0 + $1.rate * $1.duration.seconds } }

  func makeIterator() -> Iterator { Iterator(stages: stages, random: SplitMix64(seed: seed, stream: 0)) }

  /// The times of the calls from the start, in order.
  struct Iterator: IteratorProtocol {
    /// The stages that are not over, and when the first of them ends.
    private var stages: ArraySlice<ArrivalStage>
    private var end: Double
    private var random: SplitMix64
    /// Nanoseconds from the start, as a fraction, so that rounding errors do not add up.
    private var time = 0.0

    fileprivate init(stages: [ArrivalStage], random: SplitMix64) {
      (self.stages, self.random) = (stages[...], random)
      end = Double(stages.first?.duration.count ?? 0)
    }

    mutating func next() -> Nanoseconds? {
      // The gaps of a Poisson process are distributed exponentially; 1 - u is never 0. `gap` is in calls, not in time, so a gap may
      // begin in one stage and end in another.
      var gap = -log(1 - random.nextFraction())
      while let stage = stages.first {
        let callsLeft = (end - time) / 1e9 * stage.rate
        if gap < callsLeft {
          time += gap / stage.rate * 1e9
          return Nanoseconds(Int64(time))
        }
        gap -= callsLeft
        time = end
        stages = stages.dropFirst()
        end += Double(stages.first?.duration.count ?? 0)
      }
      return nil
    }
  }
}

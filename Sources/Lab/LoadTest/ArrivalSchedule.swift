// When the calls of an open-loop load come: decided before the first is sent, so that a slow system is not spared any.

internal import Foundation
internal import Runtime

/// A Poisson process: calls come independently of each other, `rate` a second on average, for `duration`.
struct ArrivalSchedule: Sequence, Sendable {
  /// Calls a second on average, above 0.
  var rate: Double
  var duration: Nanoseconds
  var seed: UInt64

  func makeIterator() -> Iterator { Iterator(schedule: self, random: SplitMix64(seed: seed, stream: 0)) }

  /// The times of the calls from the start, in order.
  struct Iterator: IteratorProtocol {
    fileprivate let schedule: ArrivalSchedule
    fileprivate var random: SplitMix64
    /// In nanoseconds from the start, with the fraction, so that rounding does not add up.
    private var time = 0.0

    fileprivate init(schedule: ArrivalSchedule, random: SplitMix64) {
      self.schedule = schedule
      self.random = random
    }

    mutating func next() -> Nanoseconds? {
      // The gaps of a Poisson process are distributed exponentially; 1 - u is never 0.
      time -= log(1 - random.nextFraction()) / schedule.rate * 1e9
      return time < Double(schedule.duration.count) ? Nanoseconds(Int64(time)) : nil
    }
  }
}

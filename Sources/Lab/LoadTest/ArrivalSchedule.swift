// The arrival times of an open-loop load. They are fixed before the first call is sent, so a slow system gets the full
// load.

internal import Foundation
internal import Runtime

/// A Poisson process: calls arrive independently of each other, on average `rate` a second, for `duration`.
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
    /// Nanoseconds from the start, as a fraction, so that rounding errors do not add up.
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

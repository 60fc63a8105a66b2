// Measures the time of a step in a way that is comparable between machines and under load.

import AllocationCount
import Runtime

/// A step that is repeated.
struct Step {
  let name: String
  /// Repeats it this number of times.
  let run: (Int) -> Void
}

/// The cost of one repetition of a step.
struct Figure {
  var nanoseconds: Double
  /// As a multiple of one round of the calibration.
  var ratio: Double
  var allocations: Double
}

/// Takes the minimum of many short samples, which is the cost without interruptions. Samples of the calibration are
/// taken in between, so that a slow machine, or a slow minute, affects both.
enum Stopwatch {
  private static let sample = Nanoseconds.microseconds(500)
  private static let clock = SystemClock()

  static func measure(_ step: Step, for budget: Nanoseconds) -> Figure {
    let repetitions = repetitionsInSample(step.run)
    let rounds = repetitionsInSample(calibrate)
    let before = allocation_count()
    step.run(repetitions)
    let allocations = Double(allocation_count() - before) / Double(repetitions)
    var least = Double.infinity
    var leastRound = Double.infinity
    let end = clock.now() + budget
    repeat {
      leastRound = min(leastRound, time(calibrate, rounds))
      least = min(least, time(step.run, repetitions))
    } while clock.now() < end
    return Figure(nanoseconds: least, ratio: least / leastRound, allocations: allocations)
  }

  /// The number of repetitions of a sample; also warms up. The fastest of five decides, because an interruption makes
  /// one seem slow.
  private static func repetitionsInSample(_ run: (Int) -> Void) -> Int {
    var count = 16
    while (0..<5).map({ _ in time(run, count) }).reduce(.infinity, min) * Double(count) < Double(sample.count) {
      count *= 2
    }
    return count
  }

  /// Nanoseconds a repetition.
  private static func time(_ run: (Int) -> Void, _ count: Int) -> Double {
    let start = clock.now()
    run(count)
    return Double((clock.now() - start).count) / Double(count)
  }

  /// Work of a known amount: FNV-1a over 256 bytes, which is a chain of 256 multiplications.
  private static func calibrate(_ rounds: Int) {
    for _ in 0..<rounds {
      for byte in text { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01B3 }
    }
  }

  private static let text = (0..<256).map { UInt8($0) }
  /// A value unknown to the optimizer. Confined to the main thread.
  nonisolated(unsafe) private static var hash: UInt64 = 0xCBF2_9CE4_8422_2325
}

/// Hides from the optimizer that a result is unused.
@inline(never)
@_optimize(none)
func keep<Value>(_ value: Value) {}

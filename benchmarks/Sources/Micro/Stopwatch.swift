// How long a step takes, told so that other machines and busy ones can agree.

import AllocationCount
import Runtime

/// Something that is done again and again.
struct Step {
  let name: String
  /// Does it so many times.
  let run: (Int) -> Void
}

/// What one repetition of a step costs.
struct Figure {
  var nanoseconds: Double
  /// As a multiple of one round of the calibration.
  var ratio: Double
  var allocations: Double
}

/// Takes the least of many short samples, which is what the step costs when nothing disturbs it. Samples of the calibration
/// are taken in between, so that a slow machine, or a slow minute, slows both.
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

  /// How many repetitions make a sample; warms up on the way. The quickest of five decides, for whoever is interrupted once
  /// seems slow.
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
  /// What the optimizer cannot know. Confined to the main thread.
  nonisolated(unsafe) private static var hash: UInt64 = 0xCBF2_9CE4_8422_2325
}

/// Lets the optimizer not see that a result is of no use.
@inline(never)
@_optimize(none)
func keep<Value>(_ value: Value) {}

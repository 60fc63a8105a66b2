// push-gateway-sim: runs seeds and reports those that break a rule.
//
//   push-gateway-sim --seeds 500 [--first 1] [--threads 2]   prints a summary, and each broken rule with its seed
//   push-gateway-sim --seed 17                               runs one seed and prints its events

#if canImport(Glibc)
import Glibc
#endif

/// The options of the command line.
struct SimulationOptions {
  var first: UInt64 = 1
  var count: UInt64 = 500
  var threads = 2
  var told: UInt64?
  /// Stop at the first broken rule.
  var isImpatient = false

  init?(_ arguments: [String]) {
    var arguments = arguments.dropFirst()
    while let name = arguments.popFirst() {
      if name == "--impatient" {
        isImpatient = true
        continue
      }
      guard let value = arguments.popFirst().flatMap({ UInt64($0) }) else { return nil }
      switch name {
      case "--first": first = value
      case "--seeds": count = value
      case "--threads": threads = max(1, Int(clamping: value))
      case "--seed": told = value
      default: return nil
      }
    }
  }
}

/// The results of a number of seeds.
struct SimulationSummary: Sendable {
  var seeds = 0
  var events = 0
  var accepted = 0
  var promises = 0
  var violations: [Violation] = []

  mutating func add(_ other: SimulationSummary) {
    seeds += other.seeds
    events += other.events
    accepted += other.accepted
    promises += other.promises
    violations += other.violations
  }
}

@main
enum Simulation {
  static func main() async {
    hashTheSameWay()
    guard let options = SimulationOptions(CommandLine.arguments) else {
      print("usage: push-gateway-sim [--seeds COUNT] [--first SEED] [--threads COUNT] [--impatient] | --seed SEED")
      exit(2)
    }
    if let seed = options.told {
      let summary = run(seed, isTold: true)
      report(summary)
      exit(summary.violations.isEmpty ? 0 : 1)
    }
    let clock = ContinuousClock()
    let started = clock.now
    let summary = await run(options)
    let seconds = (clock.now - started) / .seconds(1)
    report(summary)
    print(
      "\(summary.seeds) seeds, \(summary.accepted) pushes accepted, \(summary.promises) promises kept, \(summary.events) events, "
        + "\(summary.violations.count) broken rules, \(Int((Double(summary.seeds) / seconds).rounded())) seeds/s")
    exit(summary.violations.isEmpty ? 0 : 1)
  }

  /// Seeds are dealt out to threads in turn.
  private static func run(_ options: SimulationOptions) async -> SimulationSummary {
    await withTaskGroup(of: SimulationSummary.self) { group in
      for thread in 0..<UInt64(options.threads) {
        group.addTask {
          var summary = SimulationSummary()
          for seed in stride(from: options.first + thread, to: options.first + options.count, by: options.threads) {
            summary.add(run(seed, isTold: false))
            if options.isImpatient, !summary.violations.isEmpty { break }
          }
          return summary
        }
      }
      var sum = SimulationSummary()
      for await summary in group { sum.add(summary) }
      return sum
    }
  }

  private static func run(_ seed: UInt64, isTold: Bool) -> SimulationSummary {
    let world = World(seed: seed, isTold: isTold)
    let violation = world.run()
    return SimulationSummary(
      seeds: 1, events: world.events, accepted: world.accepted, promises: world.promises.kept,
      violations: violation.map { [$0] } ?? [])
  }

  private static func report(_ summary: SimulationSummary) {
    for violation in summary.violations.sorted(by: { $0.seed < $1.seed }) {
      print(
        "seed \(violation.seed): broken after \(violation.at / 1_000_000) ms: \(violation.rule) \(violation.detail)\n"
          + "  replay: make sim SEED=\(violation.seed)")
    }
  }

  /// Dictionaries hash with a random seed of the process; a replay must iterate them in the same order.
  private static func hashTheSameWay() {
    let name = "SWIFT_DETERMINISTIC_HASHING"
    guard unsafe getenv(name) == nil else { return }
    unsafe setenv(name, "1", 1)
    var arguments = unsafe CommandLine.arguments.map { unsafe strdup($0) }
    unsafe arguments.append(nil)
    unsafe execv("/proc/self/exe", arguments)
  }
}

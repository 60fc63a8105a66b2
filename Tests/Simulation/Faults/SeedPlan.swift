// What a seed is about: how large, how long, and which faults how often. Each seed has some kinds of faults and not others
// (swarm testing): with all of them at once the rare combinations of two would never get far enough to be seen.

import Runtime

/// A kind of fault.
enum Fault: String, CaseIterable {
  /// A statement does not reach the server, and its connection is lost.
  case lostStatement
  /// A statement gets stuck on its way: its connection is lost, and the server executes it seconds later.
  case lateStatement
  /// The server executes a statement, and its answer is lost with the connection.
  case lostAnswer
  /// The server refuses a statement for a reason that passes.
  case refusedStatement
  /// Statements take long.
  case slowStatements
  /// A replica's connections to the server break, for a while.
  case cut
  /// A connection breaks, and its end is noticed long after.
  case silentCut
  /// The server stands still, and then executes everything that has come: a machine that was suspended, a disk that hangs.
  case standstill
  /// The server is stopped and started: nothing is lost.
  case restart
  /// The server crashes: what was not on the disk is lost.
  case databaseCrash
  /// The server's clock is set ahead or back.
  case databaseClockJump
  /// A replica handles nothing for a time.
  case freeze
  /// A replica is frozen and stays so when the other faults stop.
  case freezeForGood
  /// A replica's process dies.
  case crash
  /// A delivery kills whoever handles it.
  case killer
  /// A replica's clock is too fast or too slow.
  case drift
  /// A replica's clock jumps ahead.
  case clockJump
  /// A notification is lost, or comes late.
  case lostNotification
  case doubledNotification
  /// Somebody says that calls have ended which ring.
  case forgedNotification
  /// The connection that listens breaks.
  case deafness
  /// A provider's request or its answer is lost: nobody knows whether the phone rang.
  case unknownOutcome
  /// A provider is in trouble, throttles, or takes back what it had accepted for transmission.
  case providerTrouble
  /// A provider refuses credentials for a while.
  case unauthorized
  /// Tokens are dead, requests are refused for good.
  case deadTokens
  /// A provider's connections are gone for a while.
  case providerOutage
  /// Answers of providers come very late.
  case lateAnswers
  /// Replicas join and leave.
  case joinsAndLeaves
  /// A settlement that the database refuses.
  case poison
  /// A delivery of a kind that this version does not know.
  case unknownKind

  /// Faults that leave a ring that is handled by one replica from its beginning to its end no excuse for being late.
  static let harmless: Set<Fault> = [
    .lostNotification, .doubledNotification, .forgedNotification, .drift, .poison, .unknownKind,
  ]
}

/// What one seed draws.
struct SeedPlan {
  /// Events of a kind of fault in ten seconds, on average, or its probability where it befalls statements and requests.
  private(set) var weights: [Fault: Double] = [:]
  /// When faults stop.
  let faultTime: VirtualTime
  let calls: Int
  let notifications: Int
  let replicas: Int
  /// Whether one of the two apps would rather have visible pushes twice than not at all.
  let isAtLeastOnce: Bool
  /// The most a lane may hold, and how many requests a provider has under way.
  let window: Int
  let capacity: Int
  /// How long a request and its answer are on their way, in milliseconds: to the provider, and back.
  let providerTime: ClosedRange<Int64>
  /// Calls come together.
  let isBursty: Bool

  init(_ random: inout SplitMix64) {
    let density = random.pick([0.1, 0.2, 0.35, 0.5]) ?? 0.2
    for fault in Fault.allCases where random.chance(density) {
      weights[fault] = random.pick([0.3, 1, 3]) ?? 1
    }
    faultTime = random.time(6_000...25_000)
    calls = random.count(3...30)
    notifications = random.count(0...10)
    replicas = random.count(1...4)
    isAtLeastOnce = random.chance(0.3)
    window = random.pick([3, 20, 200]) ?? 20
    capacity = random.pick([1, 5, 100]) ?? 100
    providerTime = random.pick([1...40, 1...40, 20...300, 100...1_500]) ?? 1...40
    isBursty = random.chance(0.5)
  }

  func has(_ fault: Fault) -> Bool { weights[fault] != nil }

  /// How likely a fault befalls one statement or request.
  func probability(_ fault: Fault, _ base: Double) -> Double { (weights[fault] ?? 0) * base }

  /// Nothing that happens excuses a late ring.
  var isHarmless: Bool {
    weights.keys.allSatisfy(Fault.harmless.contains) && capacity > 1 && window > 3 && providerTime.upperBound < 100
  }

  var description: String {
    let faults = Fault.allCases.compactMap { fault in weights[fault].map { "\(fault.rawValue) \($0)" } }
    return "\(replicas) replicas, \(calls) calls, \(notifications) notifications, window \(window), capacity "
      + "\(capacity), providers take \(providerTime) ms\(isAtLeastOnce ? ", one app at least once" : ""), faults for "
      + "\(faultTime / 1_000_000_000) s: \(faults.isEmpty ? "none" : faults.joined(separator: ", "))"
  }
}

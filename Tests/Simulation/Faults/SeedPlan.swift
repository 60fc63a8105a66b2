// The parameters of a seed: size, duration, and the rates of faults. Each seed has only some kinds of faults (swarm
// testing): with all of them at once, rare combinations of two would never develop far enough.

import Runtime

/// A kind of fault.
enum Fault: String, CaseIterable {
  /// A statement does not reach the server, and its connection is lost.
  case lostStatement
  /// A statement is delayed: its connection is lost, and the server executes it seconds later.
  case lateStatement
  /// The server executes a statement, and its answer is lost with the connection.
  case lostAnswer
  /// The server refuses a statement with a temporary error.
  case refusedStatement
  /// Statements take long.
  case slowStatements
  /// A replica's connections to the server break, for a while.
  case cut
  /// A connection breaks, and the client notices it long after.
  case silentCut
  /// The server stands still, then executes everything that has arrived: a suspended machine, a disk that hangs.
  case standstill
  /// The server is stopped and started: nothing is lost.
  case restart
  /// The server crashes: what was not on the disk is lost.
  case databaseCrash
  /// A standby takes the server's place: what it had not received is lost, and its ids are given to other calls.
  case failOver
  /// The server's clock is set ahead or back.
  case databaseClockJump
  /// A replica handles nothing for a time.
  case freeze
  /// A replica is frozen and stays so when the other faults stop.
  case freezeForGood
  /// A replica's process dies.
  case crash
  /// A delivery kills the process that handles it.
  case killer
  /// A replica's clock is too fast or too slow.
  case drift
  /// A replica's clock jumps ahead.
  case clockJump
  /// A notification is lost, or comes late.
  case lostNotification
  case doubledNotification
  /// Another session notifies that calls have ended which still ring.
  case forgedNotification
  /// The connection that listens breaks.
  case deafness
  /// A request to a provider or its answer is lost: it is unknown whether the phone rang.
  case unknownOutcome
  /// A provider fails, throttles, or refuses requests that it had accepted for transmission.
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
  /// A connection of each replica loses packets in one direction, so statements or answers arrive late.
  case lossyPath
  /// No gateway hears notifications, as behind a pooler that does not carry them.
  case noListener

  /// Faults that do not excuse a late ring if one replica handles it from beginning to end.
  static let harmless: Set<Fault> = [
    .lostNotification, .doubledNotification, .forgedNotification, .drift, .poison, .unknownKind,
  ]
  /// Faults that only overloads have.
  static let ofOverloads: Set<Fault> = [.lossyPath, .noListener]
}

/// The random choices of a seed.
struct SeedPlan {
  /// Average number of faults of a kind in ten seconds, or their probability for faults of statements and requests.
  private(set) var weights: [Fault: Double] = [:]
  /// When faults stop.
  let faultTime: VirtualTime
  let calls: Int
  let notifications: Int
  let replicas: Int
  /// Whether one of the two apps prefers visible pushes twice to none.
  let isAtLeastOnce: Bool
  /// Maximum number of deliveries of a lane, and of requests in flight at a provider.
  let window: Int
  let capacity: Int
  /// Travel times of a request to the provider and of its answer, in milliseconds.
  let providerTime: ClosedRange<Int64>
  /// Whether paths or tokens are ill, and nothing else is wrong.
  let isOnlyIll: Bool
  /// Whether there are more calls than providers and gateways can handle in time. Only hints are missing, or packets.
  let isOverloaded: Bool
  /// Calls arrive in groups.
  let isBursty: Bool

  /// Whether a seed is an overload.
  static func isOverload(_ seed: UInt64) -> Bool { seed % 8 == 7 }

  /// Whether a seed has only slow statements and dead tokens, so that replicas do at the same time what follows from them.
  static func isSlow(_ seed: UInt64) -> Bool { seed % 32 == 18 }

  /// - Parameters:
  ///   - isOnlyIll: whether ill paths or tokens are the only faults.
  ///   - isOverloaded: whether too many calls, and what belongs to them, are the only faults.
  ///   - isSlow: whether slow statements and dead tokens are the only faults.
  init(_ random: inout SplitMix64, isOnlyIll: Bool, isOverloaded: Bool, isSlow: Bool) {
    self.isOnlyIll = isOnlyIll
    self.isOverloaded = isOverloaded
    let density = random.pick([0.1, 0.2, 0.35, 0.5]) ?? 0.2
    for fault in Fault.allCases where !Fault.ofOverloads.contains(fault) && random.chance(density) {
      weights[fault] = random.pick([0.3, 1, 3]) ?? 1
    }
    if isOnlyIll { weights = [:] }
    if isSlow { weights = [.slowStatements: 8, .deadTokens: 1] }
    if isOverloaded {
      weights = random.chance(0.5) ? [.lostNotification: 3] : [.noListener: 1, .lossyPath: 1]
    }
    faultTime = random.time(6_000...25_000)
    let calls = random.count(3...30)
    self.calls = isOverloaded ? calls * 6 : calls
    notifications = random.count(0...10)
    let replicas = random.count(1...4)
    self.replicas = isOverloaded ? min(replicas, 2) : isSlow ? max(replicas, 2) : replicas
    isAtLeastOnce = random.chance(0.3)
    let (window, capacity) = (random.pick([3, 20, 200]) ?? 20, random.pick([1, 5, 100]) ?? 100)
    let providerTime: ClosedRange<Int64> = random.pick([1...40, 1...40, 20...300, 100...1_500]) ?? 1...40
    self.window = isOnlyIll || isOverloaded ? 200 : window
    self.capacity = isOverloaded ? 5 : isOnlyIll ? 100 : capacity
    self.providerTime = isOverloaded ? 500...3_000 : isOnlyIll ? 1...40 : providerTime
    isBursty = random.chance(0.5)
  }

  func has(_ fault: Fault) -> Bool { weights[fault] != nil }

  /// The probability of a fault for one statement or request.
  func probability(_ fault: Fault, _ base: Double) -> Double { (weights[fault] ?? 0) * base }

  /// Whether no fault of this seed excuses a late ring.
  var isHarmless: Bool {
    !isOnlyIll && weights.keys.allSatisfy(Fault.harmless.contains) && capacity > 1 && window > 3
      && providerTime.upperBound < 100
  }

  /// Whether the database answers at once, and every gateway lives. Only hints may be missing.
  var isDatabaseWell: Bool { weights.keys.allSatisfy(Fault.harmless.contains) }

  var description: String {
    let faults = Fault.allCases.compactMap { fault in weights[fault].map { "\(fault.rawValue) \($0)" } }
    return "\(replicas) replicas, \(calls) calls, \(notifications) notifications, window \(window), capacity "
      + "\(capacity), providers take \(providerTime) ms\(isAtLeastOnce ? ", one app at least once" : ""), faults for "
      + "\(faultTime / 1_000_000_000) s: \(isOnlyIll ? "ill paths or tokens" : faults.isEmpty ? "none" : faults.joined(separator: ", "))"
  }
}

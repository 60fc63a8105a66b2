// What a dispatcher did since it started, for logs and metrics. Plain values that only its loop touches: counting takes no lock.

import Dialects
import Queue
import Runtime

/// Running totals.
struct DispatcherCounters: Sendable {
  /// The app of what belongs to no lane of ours: an app that only other replicas, or none, have in their configuration. No
  /// app can be called that.
  static let unknownApp = "_other"

  /// Those of the dispatcher, in its order, then one a provider for unknown apps.
  private(set) var lanes: [LaneCounters]
  /// Each app once, in the order of its first lane; then the unknown ones together.
  private(set) var apps: [AppCounters]

  var claimed = 0
  var parked = 0
  var released = 0
  /// Results dropped because the lease was no longer ours.
  var lostLeases = 0
  /// How many settlements were written at a time.
  private(set) var settlementBatches = Histogram(.batch)
  /// From a provider's answer until it was written down.
  private(set) var settlementLag = Histogram(.latency)

  init(lanes: [(app: String, provider: ProviderKind)]) {
    self.lanes = lanes.map { LaneCounters(app: $0.app, provider: $0.provider) }
    self.lanes += ProviderKind.allCases.map { LaneCounters(app: Self.unknownApp, provider: $0) }
    var seen: Set<String> = []
    apps = self.lanes.map(\.app).filter { seen.insert($0).inserted }.map { AppCounters(app: $0) }
  }

  /// Deliveries of all lanes that ended so.
  func deliveries(_ outcome: DeliveryOutcome) -> Int { lanes.reduce(0) { $0 + $1.deliveries.total(of: outcome) } }

  /// Tries of all lanes without an answer.
  var ambiguous: Int { lanes.reduce(0) { $0 + $1.ambiguous } }

  /// Counts in one lane, by its index in the dispatcher.
  mutating func note(inLane lane: Int, _ note: (inout LaneCounters) -> Void) { note(&lanes[lane]) }

  /// A batch of endings was written down, or as much of it as was still ours.
  mutating func note(_ written: [Ending], ofBatch count: Int, _ now: Instant) {
    settlementBatches.observe(Int64(count))
    lostLeases += count - written.count
    for ending in written {
      let settlement = ending.settlement
      lanes[ending.lane].note(
        settlement.outcome, of: settlement.delivery.kind, reason: settlement.reason, isUntried: ending.isUntried)
      if let answeredAt = settlement.answeredAt { settlementLag.observe(now - answeredAt) }
    }
  }

  /// What SQL did by itself.
  mutating func note(_ tally: Tally) {
    switch tally.event {
    case .ended(let kind, let outcome, let reason, let isUntried):
      withLane(of: tally) { $0.note(outcome, of: kind, reason: reason, isUntried: isUntried, count: tally.count) }
    case .invalidated: withLane(of: tally) { $0.noteTokens(isQuarantined: false, count: tally.count) }
    case .quarantined: withLane(of: tally) { $0.noteTokens(isQuarantined: true, count: tally.count) }
    case .enqueued: withApp(of: tally) { $0.calls += tally.count }
    case .missed(isDeadline: true): withApp(of: tally) { $0.missedByDeadline += tally.count }
    case .missed(isDeadline: false): withApp(of: tally) { $0.missedByEnd += tally.count }
    case .rang(let after): withApp(of: tally) { app in for _ in 0..<tally.count { app.timeToRing.observe(after) } }
    }
  }

  private mutating func withLane(of tally: Tally, _ note: (inout LaneCounters) -> Void) {
    guard let provider = tally.provider.flatMap(ProviderKind.init) else { return }
    let index =
      lanes.firstIndex { $0.app == tally.app && $0.provider == provider }
      ?? lanes.firstIndex { $0.app == Self.unknownApp && $0.provider == provider }
    if let index { note(&lanes[index]) }
  }

  private mutating func withApp(of tally: Tally, _ note: (inout AppCounters) -> Void) {
    note(&apps[apps.firstIndex { $0.app == tally.app } ?? apps.count - 1])
  }
}

/// A delivery on its way into history, with what its counters need.
struct Ending: Sendable {
  var settlement: Settlement
  /// Index of its lane in the dispatcher.
  var lane: Int
  /// No request of it ever left.
  var isUntried: Bool
}

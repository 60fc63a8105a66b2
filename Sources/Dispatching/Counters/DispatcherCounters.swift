// What a dispatcher did since it started, for logs and metrics. Plain values that only its loop touches: counting takes no lock.

public import Providers
public import Queue
internal import Runtime

/// Running totals.
public struct DispatcherCounters: Sendable {
  /// The app of what belongs to no lane of ours: an app that only other replicas, or none, have in their configuration. No
  /// app can be called that.
  public static let unknownApp = "_other"

  /// Those of the dispatcher, in its order, then one a provider for unknown apps.
  public private(set) var lanes: [LaneCounters]
  /// Each app once, in the order of its first lane; then the unknown ones together.
  public private(set) var apps: [AppCounters]

  public var claimed = 0
  public var parked = 0
  public var released = 0
  /// Results dropped because the lease was no longer ours.
  public var lostLeases = 0
  /// Rows given back that were claimed in our name, and nobody here knew of.
  public var reconciled = 0
  /// Claims given up because their answers were lost.
  public var forgottenClaims = 0
  /// Settlements written once more, for the database had lost them.
  public var settledAgain = 0
  /// How often no beat was confirmed in time, so that nothing could be sent.
  public var leaseLapses = 0
  /// How many settlements were written at a time.
  public private(set) var settlementBatches = Histogram(.batch)
  /// From a provider's answer until it was written down.
  public private(set) var settlementLag = Histogram(.latency)

  /// Everything at zero.
  ///
  /// - Parameter lanes: in the order of the dispatcher.
  public init(lanes: [(app: String, provider: ProviderKind)]) {
    self.lanes = lanes.map { LaneCounters(app: $0.app, provider: $0.provider) }
    self.lanes += ProviderKind.allCases.map { LaneCounters(app: Self.unknownApp, provider: $0) }
    var seen: Set<String> = []
    apps = self.lanes.map(\.app).filter { seen.insert($0).inserted }.map { AppCounters(app: $0) }
  }

  /// Deliveries of all lanes that ended so.
  public func deliveries(_ outcome: DeliveryOutcome) -> Int {
    lanes.reduce(0) { $0 + $1.deliveries.total(of: outcome) }
  }

  /// Tries of all lanes without an answer.
  public var ambiguous: Int { lanes.reduce(0) { $0 + $1.ambiguous } }

  /// Counts in one lane, by its index in the dispatcher.
  mutating func note(inLane lane: Int, _ note: (inout LaneCounters) -> Void) { note(&lanes[lane]) }

  /// A settlement was written down.
  mutating func note(_ settlement: Settlement, inLane lane: Int, isUntried: Bool, _ now: Instant) {
    lanes[lane].note(
      settlement.outcome, of: settlement.delivery.kind, reason: settlement.reason, isUntried: isUntried)
    if let answeredAt = settlement.answeredAt { settlementLag.observe(now - answeredAt) }
  }

  /// So many settlements left together.
  mutating func noteSettlements(_ count: Int) { settlementBatches.observe(Int64(count)) }

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

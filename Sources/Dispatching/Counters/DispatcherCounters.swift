// The counters of a dispatcher since it started, for logs and metrics. Only its loop touches them, so counting takes no lock.

internal import Providers
public import Queue
internal import Runtime

/// Running totals.
public struct DispatcherCounters: Sendable {
  /// The app of events that belong to no lane of this gateway: the configuration does not have their app. No app can have this
  /// name.
  public static let unknownApp = "_other"

  /// The dispatcher's lanes in its order, then those that an unknown app could have.
  public internal(set) var lanes: [LaneCounters]
  /// Each app once, in the order of its first lane, then one for all unknown apps.
  public private(set) var apps: [AppCounters]

  public var claimed = 0
  public var parked = 0
  public var released = 0
  /// Number of results dropped because the lease was no longer ours.
  public var lostLeases = 0
  /// Number of rows given up that were claimed in our name and that this gateway did not know.
  public var reconciled = 0
  /// Number of claims forgotten because their answers were lost.
  public var forgottenClaims = 0
  /// How often nothing could be sent because no beat was confirmed in time.
  public var leaseLapses = 0
  /// Number of settlements in a batch.
  public internal(set) var settlementBatches = Histogram(.batch)
  /// The time from a provider's answer until it was written.
  public private(set) var settlementLag = Histogram(.latency)

  /// All counters at zero.
  ///
  /// - Parameter lanes: in the order of the dispatcher.
  public init(lanes: [LaneName]) {
    let unknown = ProviderKind.allCases.flatMap { provider in
      provider.services.map { LaneName(app: Self.unknownApp, provider: provider, service: $0) }
    }
    self.lanes = (lanes + unknown).map { LaneCounters($0) }
    var seen: Set<String> = []
    apps = self.lanes.map(\.name.app).filter { seen.insert($0).inserted }.map { AppCounters(app: $0) }
  }

  /// Number of deliveries of all lanes with this outcome.
  public func deliveries(_ outcome: DeliveryOutcome) -> Int {
    lanes.reduce(0) { $0 + $1.deliveries.total(of: outcome) }
  }

  /// Number of tries of all lanes without an answer.
  public var ambiguous: Int { lanes.reduce(0) { $0 + $1.ambiguous } }

  /// Adds the counters of another dispatcher. A lane or an app that this one does not have is added after its own.
  public mutating func add(_ other: DispatcherCounters) {
    for lane in other.lanes {
      if let index = lanes.firstIndex(where: { $0.name == lane.name }) {
        lanes[index].add(lane)
      } else {
        lanes.append(lane)
      }
    }
    for app in other.apps {
      if let index = apps.firstIndex(where: { $0.app == app.app }) { apps[index].add(app) } else { apps.append(app) }
    }
    claimed += other.claimed
    parked += other.parked
    released += other.released
    lostLeases += other.lostLeases
    reconciled += other.reconciled
    forgottenClaims += other.forgottenClaims
    leaseLapses += other.leaseLapses
    settlementBatches.add(other.settlementBatches)
    settlementLag.add(other.settlementLag)
  }

  /// A settlement was written.
  mutating func note(_ settlement: Settlement, inLane lane: Int, isUntried: Bool, _ now: Instant) {
    lanes[lane].note(
      settlement.outcome, of: settlement.delivery.kind, reason: settlement.reason, isUntried: isUntried)
    if let answeredAt = settlement.answeredAt { settlementLag.observe(now - answeredAt) }
  }

  /// Counts what SQL did without a gateway.
  mutating func note(_ tally: Tally) {
    switch tally.event {
    case .ended(let kind, let outcome, let reason, let isUntried):
      withLane(of: tally) { $0.note(outcome, of: kind, reason: reason, isUntried: isUntried, count: tally.count) }
    case .invalidated: withLane(of: tally) { $0.invalidatedTokens += tally.count }
    case .quarantined: withLane(of: tally) { $0.quarantinedTokens += tally.count }
    case .enqueued: withApp(of: tally) { $0.calls += tally.count }
    case .refused: withApp(of: tally) { $0.quotaRefusals += tally.count }
    case .missed(isDeadline: true): withApp(of: tally) { $0.missedByDeadline += tally.count }
    case .missed(isDeadline: false): withApp(of: tally) { $0.missedByEnd += tally.count }
    case .rang(let after): withApp(of: tally) { app in for _ in 0..<tally.count { app.timeToRing.observe(after) } }
    }
  }

  private mutating func withLane(of tally: Tally, _ note: (inout LaneCounters) -> Void) {
    guard let channel = tally.channel else { return }
    let index =
      lanes.firstIndex { $0.name.app == tally.app && $0.name.channel == channel }
      ?? lanes.firstIndex { $0.name.app == Self.unknownApp && $0.name.channel == channel }
    if let index { note(&lanes[index]) }
  }

  private mutating func withApp(of tally: Tally, _ note: (inout AppCounters) -> Void) {
    note(&apps[apps.firstIndex { $0.app == tally.app } ?? apps.count - 1])
  }
}

// The counters of one lane, and of one app's calls, since the gateway started. Plain values, confined to the dispatcher.

internal import Providers
internal import PushModel
public import Queue
internal import Runtime

/// Running totals of one lane.
public struct LaneCounters: Sendable {
  /// Why a circuit opened.
  public enum OpeningReason: String, CaseIterable, Sendable {
    case failures, unauthorized
  }

  private static let histograms = PushKind.allCases.map { _ in Histogram(.latency) }

  public let name: LaneName
  public let reasons: ReasonLabels

  /// Number of answers to tries.
  public private(set) var attempts: OutcomeCounts<AttemptOutcome>
  /// Number of deliveries that have ended and are written.
  public private(set) var deliveries: OutcomeCounts<DeliveryOutcome>
  /// By `PushKind`: the time from the backend's commit until the first request was sent.
  public private(set) var enqueueToSend = Self.histograms
  /// By kind: the time from a request to its answer.
  public private(set) var sendToAnswer = Self.histograms
  /// By kind: the time from the backend's commit until the provider accepted the push.
  public private(set) var enqueueToAnswer = Self.histograms
  /// Number of tries without an answer. The phone may have got the push or not.
  public var ambiguous: Int { attempts.total(of: .unknown) }
  /// Number of deliveries that expired before any try.
  public private(set) var expiredBeforeSend = 0
  public internal(set) var invalidatedTokens = 0
  public internal(set) var quarantinedTokens = 0
  public var circuitOpenings: [OpeningReason: Int] = [:]

  init(_ name: LaneName) {
    self.name = name
    reasons = .of(name.provider)
    attempts = OutcomeCounts(reasons: reasons.words.count)
    deliveries = OutcomeCounts(reasons: reasons.words.count)
  }

  /// A try of a delivery has a result.
  ///
  /// - Parameter isFirst: no request of it was sent before.
  mutating func note(_ result: PushResult, of delivery: Delivery, isFirst: Bool) {
    guard let (outcome, reason) = AttemptOutcome.reading(result.outcome) else { return }
    attempts[delivery.kind, outcome, reason: reasons.index(of: reason)] += 1
    guard let sentAt = result.sentAt else { return }
    let kind = Int(delivery.kind.rawValue)
    if isFirst { enqueueToSend[kind].observe(sentAt - delivery.enqueuedAt) }
    if result.status > 0 { sendToAnswer[kind].observe(result.answeredAt - sentAt) }
    if outcome == .accepted { enqueueToAnswer[kind].observe(result.answeredAt - delivery.enqueuedAt) }
  }

  /// Deliveries have ended, in this gateway or in the database.
  ///
  /// - Parameter isUntried: no request of them was ever sent.
  mutating func note(
    _ outcome: DeliveryOutcome, of kind: PushKind, reason: String?, isUntried: Bool, count: Int = 1
  ) {
    let unnamed = [DeliveryOutcome.expired: "DeadlinePassed", .void: "CallEnded"][outcome, default: "Unknown"]
    let reason = outcome == .delivered ? nil : reason ?? unnamed
    deliveries[kind, outcome, reason: reasons.index(of: reason)] += count
    if outcome == .expired, isUntried { expiredBeforeSend += count }
  }

  /// Adds the counters of the same lane in another dispatcher.
  mutating func add(_ other: LaneCounters) {
    attempts.add(other.attempts)
    deliveries.add(other.deliveries)
    for kind in enqueueToSend.indices {
      enqueueToSend[kind].add(other.enqueueToSend[kind])
      sendToAnswer[kind].add(other.sendToAnswer[kind])
      enqueueToAnswer[kind].add(other.enqueueToAnswer[kind])
    }
    expiredBeforeSend += other.expiredBeforeSend
    invalidatedTokens += other.invalidatedTokens
    quarantinedTokens += other.quarantinedTokens
    circuitOpenings.merge(other.circuitOpenings, uniquingKeysWith: +)
  }

}

/// Running totals of one app.
public struct AppCounters: Sendable {
  public let app: String
  public var calls = 0
  /// Number of statements refused because of the app's quota.
  public var quotaRefusals = 0
  /// Number of missed calls announced at the deadline.
  public var missedByDeadline = 0
  /// Number of missed calls announced because the call ended unanswered.
  public var missedByEnd = 0
  /// The time from the backend's commit until a phone reported that it rings.
  public var timeToRing = Histogram(.latency)

  init(app: String) { self.app = app }

  /// Adds the counters of the same app in another dispatcher.
  mutating func add(_ other: AppCounters) {
    calls += other.calls
    quotaRefusals += other.quotaRefusals
    missedByDeadline += other.missedByDeadline
    missedByEnd += other.missedByEnd
    timeToRing.add(other.timeToRing)
  }
}

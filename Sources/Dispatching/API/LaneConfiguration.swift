// The settings of a lane: one app's account at one provider, or at one push service of browsers.

public import Dialects
public import Providers
public import Runtime

/// One lane.
public struct LaneConfiguration: Sendable {
  /// `push.lane.id`.
  public var id: Int16
  public var name: LaneName
  /// Makes requests of the lane's deliveries.
  public var planner: CallPlanner
  /// Maximum number of deliveries held at a time.
  public var window: Int
  /// Maximum number of deliveries sent a second; nil for no limit.
  public var perSecond: Int?
  /// How long after sending the provider has a receipt (Expo); nil if it has none.
  public var receiptAfter: Nanoseconds?
  /// When the lane's dead tokens are quarantined instead of deleted.
  public var invalidation: InvalidationBreaker.Limits
  /// Whether missed calls and notifications whose fate is unknown are sent again, because the app prefers two to none.
  public var isAtLeastOnce: Bool

  public init(
    id: Int16, app: String, provider: ProviderKind, service: WebPushService? = nil, planner: CallPlanner, window: Int,
    perSecond: Int? = nil,
    receiptAfter: Nanoseconds? = nil, invalidation: InvalidationBreaker.Limits = InvalidationBreaker.Limits(),
    isAtLeastOnce: Bool = false
  ) {
    self.id = id
    name = LaneName(app: app, provider: provider, service: service)
    self.planner = planner
    self.window = window
    self.perSecond = perSecond
    self.receiptAfter = receiptAfter
    self.invalidation = invalidation
    self.isAtLeastOnce = isAtLeastOnce
  }

  public var app: String { name.app }
  public var provider: ProviderKind { name.provider }
}

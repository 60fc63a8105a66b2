// A lane as the dispatcher decides about it: one app's account at one provider.

public import Dialects
public import Providers
public import Runtime

/// One lane.
public struct LaneConfiguration: Sendable {
  /// `push.lane.id`.
  public var id: Int16
  public var app: String
  public var provider: ProviderKind
  /// Makes requests of the lane's deliveries.
  public var planner: CallPlanner
  /// Most deliveries held at a time.
  public var window: Int
  /// Most deliveries sent a second; nil for no limit.
  public var perSecond: Int?
  /// How long after sending the provider can tell more (Expo's receipts); nil where it has nothing to add.
  public var receiptAfter: Nanoseconds?
  /// When the provider is no longer believed that tokens are dead.
  public var invalidation: InvalidationBreaker.Limits
  /// Whether missed calls and notifications whose fate is unknown are sent again: better twice than not at all.
  public var isAtLeastOnce: Bool

  public init(
    id: Int16, app: String, provider: ProviderKind, planner: CallPlanner, window: Int, perSecond: Int? = nil,
    receiptAfter: Nanoseconds? = nil, invalidation: InvalidationBreaker.Limits = InvalidationBreaker.Limits(),
    isAtLeastOnce: Bool = false
  ) {
    self.id = id
    self.app = app
    self.provider = provider
    self.planner = planner
    self.window = window
    self.perSecond = perSecond
    self.receiptAfter = receiptAfter
    self.invalidation = invalidation
    self.isAtLeastOnce = isAtLeastOnce
  }
}

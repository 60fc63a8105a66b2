// A lane as the dispatcher drives it: one app's account at one provider.

import Dialects
import Providers
import Runtime

/// One lane and the provider behind it.
struct DispatcherLane: Sendable {
  /// `push.lane.id`.
  var id: Int16
  var app: String
  var kind: ProviderKind
  var provider: any PushProvider
  /// Makes requests of the lane's deliveries.
  var planner: CallPlanner
  /// Most deliveries held at a time.
  var window: Int
  /// Most deliveries sent a second; nil for no limit.
  var perSecond: Int?
  /// How long after sending the provider can tell more (Expo's receipts); nil where it has nothing to add.
  var receiptAfter: Nanoseconds?
  /// When the provider is no longer believed that tokens are dead.
  var invalidation = InvalidationBreaker.Limits()
}

extension DispatcherLane {
  /// The lane of an app's provider, with what the app's configuration says of it.
  init(id: Int16, app: GatewayConfiguration.App, kind: ProviderKind, _ lane: LaneProvider) {
    self.init(
      id: id, app: app.name, kind: kind, provider: lane.provider,
      planner: CallPlanner(dialect: app.dialect, provider: kind, appLocale: app.locale), window: lane.window,
      perSecond: lane.perSecond,
      receiptAfter: kind == .expo ? app.expo.map { .milliseconds(Int64($0.receiptAfterMilliseconds)) } : nil,
      invalidation: InvalidationBreaker.Limits(
        deadPercent: app.invalidation.deadPercent, answersMin: app.invalidation.answersMin,
        window: .seconds(Int64(app.invalidation.windowSeconds))))
  }
}

extension PushProvider {
  /// How it is; to be asked on its loop.
  nonisolated var conditionOnLoop: ProviderCondition { assumeIsolated { $0.condition } }

  /// Takes back what has not left, from whatever loop the caller is on.
  nonisolated func takeBack(_ tags: Set<UInt64>) {
    if loop.isCurrent {
      assumeIsolated { $0.withdraw(tags) }
    } else {
      loop.execute { self.assumeIsolated { $0.withdraw(tags) } }
    }
  }

  /// Hands a batch over from whatever loop the caller is on.
  nonisolated func take(_ batch: [PushRequest]) {
    if loop.isCurrent {
      assumeIsolated { $0.send(batch) }
    } else {
      loop.execute { self.assumeIsolated { $0.send(batch) } }
    }
  }
}

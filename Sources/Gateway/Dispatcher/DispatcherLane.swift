// A lane as the dispatcher drives it: one app's account at one provider.

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
}

extension PushProvider {
  /// Hands a batch over from whatever loop the caller is on.
  nonisolated func take(_ batch: [PushRequest]) {
    if loop.isCurrent {
      assumeIsolated { $0.send(batch) }
    } else {
      loop.execute { self.assumeIsolated { $0.send(batch) } }
    }
  }
}

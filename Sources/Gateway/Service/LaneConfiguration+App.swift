// Makes the configuration of a lane from that of its app.

import Dialects
import Dispatching
import Providers
import Runtime
import Settings

extension LaneConfiguration {
  /// The lane of an account of an app.
  init(id: Int16, app: GatewayConfiguration.App, _ account: LaneAccount) {
    let kind = account.kind
    self.init(
      id: id, app: app.name, provider: kind, service: account.service,
      planner: CallPlanner(app, kind),
      window: account.lane.window,
      perSecond: app.ratePerSecond(kind), receiptAfter: app.receiptAfter(kind),
      invalidation: InvalidationBreaker.Limits(
        deadPercent: app.invalidation.deadPercent, answersMin: app.invalidation.answersMin,
        window: .seconds(Int64(app.invalidation.windowSeconds))),
      isAtLeastOnce: app.isAtLeastOnce)
  }
}

extension CallPlanner {
  /// Plans what an app sends over a provider.
  init(_ app: GatewayConfiguration.App, _ provider: ProviderKind) {
    self.init(
      dialect: app.dialect, provider: provider, appLocale: app.locale, unknownName: app.unknownName,
      missedCallChannel: app.missedCallChannel, showsMessageText: app.sendsMessageText)
  }
}

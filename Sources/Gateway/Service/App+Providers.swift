// What the service must know of an app's sections for its providers: which settings need other connections, limits, files.

import Dispatching
import Providers
import Runtime
import Settings

extension GatewayConfiguration.App {
  /// The settings that a provider's connections depend on.
  struct ConnectionSettings: Equatable {
    var proxy: GatewayConfiguration.Proxy?
    var apns: GatewayConfiguration.APNs?
    var fcm: GatewayConfiguration.FCM?
    var expo: GatewayConfiguration.Expo?
    var webPush: GatewayConfiguration.WebPush?
  }

  /// The app without what changes while its connections stay.
  var withoutCredentials: GatewayConfiguration.App {
    var app = self
    app.apns?.teamID = ""
    app.apns?.keyID = ""
    app.apns?.keyFile = ""
    app.fcm?.serviceAccountFile = ""
    app.expo?.accessTokenFile = nil
    app.webPush?.vapidKeyFile = ""
    app.webPush?.subject = ""
    app.webhook = nil  // WebhookService takes it over
    app.matrix = nil  // APIApps does
    return app
  }

  func connectionSettings(_ kind: ProviderKind) -> ConnectionSettings {
    let app = withoutCredentials
    var settings = ConnectionSettings(proxy: proxy)
    switch kind {
    case .apns: settings.apns = app.apns
    case .fcm:
      settings.fcm = app.fcm
      settings.fcm?.ratePerSecond = 0
    case .expo:
      settings.expo = app.expo
      settings.expo?.ratePerSecond = 0
      settings.expo?.receiptAfterMilliseconds = 0
    case .webpush:
      settings.webPush = app.webPush
      settings.webPush?.ratePerSecond = 0
    }
    return settings
  }

  /// Its lanes: one for each provider, or for each service behind it.
  var lanes: [LaneName] {
    providers.flatMap { kind in kind.services.map { LaneName(app: name, provider: kind, service: $0) } }
  }

  /// The files with the credentials of its providers.
  var credentialsFiles: [String] {
    [apns?.keyFile, fcm?.serviceAccountFile, expo?.accessTokenFile, webPush?.vapidKeyFile].compactMap(\.self)
  }

  /// Maximum number of pushes a second; nil for no limit.
  func ratePerSecond(_ kind: ProviderKind) -> Int? {
    switch kind {
    case .apns: nil
    case .fcm: fcm?.ratePerSecond
    case .expo: expo?.ratePerSecond
    case .webpush: webPush?.ratePerSecond
    }
  }

  /// How long after sending the provider has a receipt; nil if it has none.
  func receiptAfter(_ kind: ProviderKind) -> Nanoseconds? {
    kind == .expo ? expo.map { .milliseconds(Int64($0.receiptAfterMilliseconds)) } : nil
  }

  /// Maximum number of descriptors of a provider's connections. A connection that is being replaced, or whose key changes, counts
  /// twice.
  func descriptors(_ kind: ProviderKind) -> Int {
    switch kind {
    case .apns: (apns?.connections ?? 0) * 4  // two endpoints
    case .fcm: (fcm?.connections ?? 0) * 2 + 1
    case .expo: (expo?.connections ?? 0) + 1
    case .webpush:
      webPush.map { settings in
        kind.services.reduce(0) { $0 + settings.connections * settings.originsMax(of: $1) * 2 }
      } ?? 0
    }
  }
}

extension GatewayConfiguration.WebPush {
  /// Maximum number of origins of a lane with connections at a time. Several dozen hosts belong to WNS.
  func originsMax(of service: WebPushService?) -> Int { origins.originsMax(of: service, wildcard: 32) }
}

// What an operator tells the gateway: the YAML file, the environment above it, DATABASE_URL above both.

internal import Dialects
internal import Logging
internal import Providers
internal import Runtime

/// A configuration whose every value has been checked. Files are named by absolute path or relative to the working directory.
struct GatewayConfiguration: Sendable, Equatable {
  /// A provider's origin: always https.
  struct ProviderURL: Sendable, Equatable, CustomStringConvertible {
    var host: String
    var port: UInt16
    var description: String {
      let host = host.contains(":") ? "[\(host)]" : host
      return port == 443 ? "https://\(host)" : "https://\(host):\(port)"
    }
  }

  /// An HTTP proxy that takes CONNECT.
  struct Proxy: Sendable, Hashable, CustomStringConvertible {
    var host: String
    var port: UInt16
    /// Holds its user and password; nil: it asks for none.
    var credentialsFile: String?
    var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
  }

  struct Listener: Sendable, Equatable {
    var host: String
    /// 0 for any free port.
    var port: UInt16
  }

  /// What a listener proves itself with, and asks of its clients.
  struct ListenerTLS: Sendable, Equatable {
    enum ClientCertificates: String, Sendable, CaseIterable {
      case required
      /// A client may show none; one that it shows must be right.
      case optional
    }

    var certificateFile: String
    var keyFile: String
    /// Holds the authorities that clients' certificates come from; nil: clients are asked for none.
    var clientCAFile: String?
    var clientCertificates = ClientCertificates.required
  }

  /// When an invite is sent once more over another connection.
  struct Hedging: Sendable, Equatable {
    /// None is that has waited for less.
    var afterMilliseconds: Int
    /// Most of a lane's pushes that are; 0: none.
    var percentMax: Int
  }

  struct APNs: Sendable, Equatable {
    var teamID: String
    var keyID: String
    var keyFile: String
    /// The bundle id, without `.voip`.
    var topic: String
    var productionURL: ProviderURL
    var sandboxURL: ProviderURL
    /// Connections an environment.
    var connections: Int
    var streamsPerConnection: Int
    var hedging: Hedging
  }

  struct FCM: Sendable, Equatable {
    var serviceAccountFile: String
    var url: ProviderURL
    var connections: Int
    var streamsPerConnection: Int
    /// Most messages sent a second.
    var ratePerSecond: Int
    var hedging: Hedging
  }

  struct Expo: Sendable, Equatable {
    var url: ProviderURL
    var accessTokenFile: String?
    var connections: Int
    /// Most pushes sent a second.
    var ratePerSecond: Int
    /// How long after its ticket a receipt is asked for.
    var receiptAfterMilliseconds: Int
  }

  /// When so many dead tokens at once are believed to be the provider's mistake rather than the tokens'.
  struct Invalidation: Sendable, Equatable {
    /// More of a lane's answers than this share, and its dead tokens are put on hold.
    var deadPercent: Int
    /// The fewest answers to judge by.
    var answersMin: Int
    /// How far back answers count.
    var windowSeconds: Int
  }

  /// Whom a missed call is shown to, whether a gateway or the backend announces it; as `push.apps.missed_calls` has it.
  enum MissedCalls: String, Sendable, CaseIterable {
    /// Nobody.
    case off
    /// One phone of each user.
    case newest
    /// Every phone of each user.
    case all
  }

  struct App: Sendable, Equatable {
    /// As `push.outbox.app` has it.
    var name: String
    /// With the app's own templates laid over the shipped ones.
    var dialect: Dialect
    /// BCP 47: the language for devices whose own gives none.
    var locale: String?
    var ringSeconds: Int
    /// When a user none of whose phones said that it rings is tried on the next channel; nil: never.
    var escalateAfterSeconds: Int?
    /// Whether missed calls and notifications are sent again when nobody knows if they arrived.
    var isAtLeastOnce: Bool
    /// Nil: one phone of each user hears what gateways announce, every phone what the backend enqueues.
    var missedCalls: MissedCalls?
    /// Whether all its phones take a VoIP push for the end of a call.
    var hasVoIPCancel = false
    /// What its connections to providers go through; nil: to the providers themselves.
    var proxy: Proxy?
    var invalidation: Invalidation
    var apns: APNs?
    var fcm: FCM?
    var expo: Expo?

    /// The providers that are configured.
    var providers: [ProviderKind] {
      [apns.map { _ in .apns }, fcm.map { _ in .fcm }, expo.map { _ in .expo }].compactMap { $0 }
    }
  }

  /// The HTTP API for backends.
  struct API: Sendable, Equatable {
    var listener: Listener
    var bodyMaxBytes: Int
    /// The time a request has to arrive, and the database to answer.
    var requestTimeoutSeconds: Int
    /// Calls are refused while the oldest invite has waited longer.
    var busyAfterSeconds: Int
    /// Most requests a second of one key.
    var ratePerSecond: Int
    var connectionsMax: Int
    /// Whose `X-Forwarded-For` is believed.
    var trustedProxies: [IPRange] = []
    /// Nil: clear text.
    var tls: ListenerTLS?
  }

  /// May hold a password: never to be logged.
  var databaseURL: String
  var http: Listener
  /// Connections to `http` at a time.
  var httpConnectionsMax: Int
  /// Of `http`; nil: clear text.
  var httpTLS: ListenerTLS?
  /// Nil: it is off.
  var api: API?
  /// Whether `http` serves the page for whoever is on call.
  var hasDashboard: Bool
  var opsAccess: OpsAccess
  /// Added to the system's certificate authorities.
  var caFile: String?
  /// That of the apps that name none of their own.
  var proxy: Proxy?
  /// What is asked of files with secrets.
  var secretPrivacy = SecretFile.Privacy.required
  var logLevel: Logger.Level
  /// Nil: whichever suits standard error.
  var logFormat: LogFormat?
  var drainSeconds: Int
  /// Sorted by name.
  var apps: [App]

  /// The listeners that speak TLS, by the section of their settings.
  var listenerTLS: [(name: String, tls: ListenerTLS)] {
    [("http", httpTLS), ("api", api?.tls)].compactMap { name, tls in tls.map { (name, $0) } }
  }
}

// What an operator tells the gateway: the YAML file, the environment above it, DATABASE_URL above both.

package import Dialects
package import Logging
package import Providers
package import Runtime

/// A configuration whose every value has been checked. Files are named by absolute path or relative to the working directory.
package struct GatewayConfiguration: Sendable, Equatable {
  /// A provider's origin: always https.
  package struct ProviderURL: Sendable, Equatable, CustomStringConvertible {
    package var host: String
    package var port: UInt16
    package var description: String {
      let host = host.contains(":") ? "[\(host)]" : host
      return port == 443 ? "https://\(host)" : "https://\(host):\(port)"
    }
  }

  /// An HTTP proxy that takes CONNECT.
  package struct Proxy: Sendable, Hashable, CustomStringConvertible {
    package var host: String
    package var port: UInt16
    /// Holds its user and password; nil: it asks for none.
    package var credentialsFile: String?
    package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
  }

  package struct Listener: Sendable, Equatable {
    package var host: String
    /// 0 for any free port.
    package var port: UInt16
  }

  /// What a listener proves itself with, and asks of its clients.
  package struct ListenerTLS: Sendable, Equatable {
    package enum ClientCertificates: String, Sendable, CaseIterable {
      case required
      /// A client may show none; one that it shows must be right.
      case optional
    }

    package var certificateFile: String
    package var keyFile: String
    /// Holds the authorities that clients' certificates come from; nil: clients are asked for none.
    package var clientCAFile: String?
    package var clientCertificates = ClientCertificates.required
  }

  /// When an invite is sent once more over another connection.
  package struct Hedging: Sendable, Equatable {
    /// None is that has waited for less.
    package var afterMilliseconds: Int
    /// Most of a lane's pushes that are; 0: none.
    package var percentMax: Int
  }

  package struct APNs: Sendable, Equatable {
    package var teamID: String
    package var keyID: String
    package var keyFile: String
    /// The bundle id, without `.voip`.
    package var topic: String
    package var productionURL: ProviderURL
    package var sandboxURL: ProviderURL
    /// Connections an environment.
    package var connections: Int
    package var streamsPerConnection: Int
    package var hedging: Hedging
  }

  package struct FCM: Sendable, Equatable {
    package var serviceAccountFile: String
    package var url: ProviderURL
    package var connections: Int
    package var streamsPerConnection: Int
    /// Most messages sent a second.
    package var ratePerSecond: Int
    package var hedging: Hedging
  }

  package struct Expo: Sendable, Equatable {
    package var url: ProviderURL
    package var accessTokenFile: String?
    package var connections: Int
    /// Most pushes sent a second.
    package var ratePerSecond: Int
    /// How long after its ticket a receipt is asked for.
    package var receiptAfterMilliseconds: Int
  }

  /// When so many dead tokens at once are believed to be the provider's mistake rather than the tokens'.
  package struct Invalidation: Sendable, Equatable {
    /// More of a lane's answers than this share, and its dead tokens are put on hold.
    package var deadPercent: Int
    /// Answers needed before the rule applies.
    package var answersMin: Int
    /// How far back answers count.
    package var windowSeconds: Int
  }

  /// Whom a missed call is shown to, whether a gateway or the backend announces it; as `push.apps.missed_calls` has it.
  package enum MissedCalls: String, Sendable, CaseIterable {
    /// Nobody.
    case off
    /// One phone of each user.
    case newest
    /// Every phone of each user.
    case all
  }

  package struct App: Sendable, Equatable {
    /// As `push.outbox.app` has it.
    package var name: String
    /// With the app's own templates laid over the shipped ones.
    package var dialect: Dialect
    /// BCP 47: the language for devices whose own gives none.
    package var locale: String?
    package var ringSeconds: Int
    /// When a user none of whose phones said that it rings is tried on the next channel; nil: never.
    package var escalateAfterSeconds: Int?
    /// Whether missed calls and notifications are sent again when nobody knows if they arrived.
    package var isAtLeastOnce: Bool
    /// Nil: one phone of each user hears what gateways announce, every phone what the backend enqueues.
    package var missedCalls: MissedCalls?
    /// Whether all its phones take a VoIP push for the end of a call.
    package var hasVoIPCancel = false
    /// What its connections to providers go through; nil: to the providers themselves.
    package var proxy: Proxy?
    package var invalidation: Invalidation
    package var apns: APNs?
    package var fcm: FCM?
    package var expo: Expo?

    /// The providers that are configured.
    package var providers: [ProviderKind] {
      [apns.map { _ in .apns }, fcm.map { _ in .fcm }, expo.map { _ in .expo }].compactMap { $0 }
    }
  }

  /// The HTTP API for backends.
  package struct API: Sendable, Equatable {
    package var listener: Listener
    package var bodyMaxBytes: Int
    /// The time a request has to arrive, and the database to answer.
    package var requestTimeoutSeconds: Int
    /// Calls are refused while the oldest invite has waited longer.
    package var busyAfterSeconds: Int
    /// Most requests a second of one key.
    package var ratePerSecond: Int
    package var connectionsMax: Int
    /// Whose `X-Forwarded-For` is believed.
    package var trustedProxies: [IPRange] = []
    /// Nil: clear text.
    package var tls: ListenerTLS?
  }

  /// May hold a password: never to be logged.
  package var databaseURL: String
  package var http: Listener
  /// Connections to `http` at a time.
  package var httpConnectionsMax: Int
  /// Of `http`; nil: clear text.
  package var httpTLS: ListenerTLS?
  /// Nil: it is off.
  package var api: API?
  /// Whether `http` serves the page for whoever is on call.
  package var hasDashboard: Bool
  package var opsAccess: OpsAccess
  /// Added to the system's certificate authorities.
  package var caFile: String?
  /// That of the apps that name none of their own.
  package var proxy: Proxy?
  /// What is asked of files with secrets.
  package var secretPrivacy = SecretFile.Privacy.required
  package var logLevel: Logger.Level
  /// Nil: whichever suits standard error.
  package var logFormat: LogFormat?
  package var drainSeconds: Int
  /// Sorted by name.
  package var apps: [App]

  /// The listeners that speak TLS, by the section of their settings.
  package var listenerTLS: [(name: String, tls: ListenerTLS)] {
    [("http", httpTLS), ("api", api?.tls)].compactMap { name, tls in tls.map { (name, $0) } }
  }
}

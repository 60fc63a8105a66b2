// The checked configuration, from the YAML file, the environment, which overrides the file, and DATABASE_URL, which
// overrides both.

package import Dialects
package import Logging
package import Providers
package import Runtime

/// A configuration whose values have all been checked. Paths of files are absolute or relative to the working
/// directory.
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

  /// An HTTP proxy that supports CONNECT.
  package struct Proxy: Sendable, Hashable, CustomStringConvertible {
    package var host: String
    package var port: UInt16
    /// The file with user and password; nil if the proxy needs none.
    package var credentialsFile: String?
    package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
  }

  package struct Listener: Sendable, Equatable {
    package var host: String
    /// The port; 0: the system chooses a free one.
    package var port: UInt16
  }

  /// The certificate of a listener, and what it requires of its clients.
  package struct ListenerTLS: Sendable, Equatable {
    package enum ClientCertificates: String, Sendable, CaseIterable {
      case required
      /// A client may omit the certificate, but an invalid one is refused.
      case optional
    }

    package var certificateFile: String
    package var keyFile: String
    /// The authorities that issue the clients' certificates; nil if clients need none.
    package var clientCAFile: String?
    package var clientCertificates = ClientCertificates.required
  }

  /// When an invite is sent a second time over another connection.
  package struct Hedging: Sendable, Equatable {
    /// Minimum time without an answer before that.
    package var afterMilliseconds: Int
    /// Maximum share of a lane's pushes that are sent a second time, in percent; 0: none.
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
    /// Connections per environment.
    package var connections: Int
    package var streamsPerConnection: Int
    package var hedging: Hedging
  }

  package struct FCM: Sendable, Equatable {
    package var serviceAccountFile: String
    package var url: ProviderURL
    package var connections: Int
    package var streamsPerConnection: Int
    /// Maximum number of messages a second.
    package var ratePerSecond: Int
    package var hedging: Hedging
  }

  package struct Expo: Sendable, Equatable {
    package var url: ProviderURL
    package var accessTokenFile: String?
    package var connections: Int
    /// Maximum number of pushes a second.
    package var ratePerSecond: Int
    /// Time from a ticket until its receipt is fetched.
    package var receiptAfterMilliseconds: Int
  }

  /// Web push to browsers.
  package struct WebPush: Sendable, Equatable {
    package var vapidKeyFile: String
    /// `mailto:` or https, for the operators of push services.
    package var subject: String
    /// The origins that endpoints may have.
    package var origins: WebPushAllowedOrigins
    /// Maximum number of connections to each origin.
    package var connections: Int
    /// Maximum number of pushes a second.
    package var ratePerSecond: Int
  }

  /// From how many dead tokens on the provider is assumed to be wrong, so that the tokens are quarantined.
  package struct Invalidation: Sendable, Equatable {
    /// Tokens are quarantined when more than this share of a lane's answers reports dead tokens.
    package var deadPercent: Int
    /// Minimum number of answers for that.
    package var answersMin: Int
    /// The period over which answers are counted.
    package var windowSeconds: Int
  }

  /// Which phones show a missed call, whether a gateway or the backend announces it. The values of
  /// `push.apps.missed_calls`.
  package enum MissedCalls: String, Sendable, CaseIterable {
    /// None.
    case off
    /// One phone of each user.
    case newest
    /// Every phone of each user.
    case all
  }

  /// How much an app may enqueue in a minute; nil: as much as it likes. The columns of `push.quota`.
  package struct Quota: Sendable, Equatable {
    package var callsPerMinute: Int?
    package var notificationsPerMinute: Int?
    /// Entries of `recipients`, of calls and notifications together.
    package var recipientsPerMinute: Int?

    package init(callsPerMinute: Int? = nil, notificationsPerMinute: Int? = nil, recipientsPerMinute: Int? = nil) {
      self.callsPerMinute = callsPerMinute
      self.notificationsPerMinute = notificationsPerMinute
      self.recipientsPerMinute = recipientsPerMinute
    }
  }

  /// Where an app's backend is told what became of deliveries, calls and tokens.
  package struct Webhook: Sendable, Equatable {
    /// It may contain a secret, so it must not be logged.
    package var url: String
    /// Host and port of the URL.
    package var host: String
    package var secretFile: String
    /// The types that are sent; nil: all.
    package var events: [String]?
    /// Maximum time of a request.
    package var timeoutMilliseconds: Int

    /// All types, as in `push.webhook_event.type`.
    package static let types = [
      "delivery.finished", "delivery.receipt", "call.answered", "call.declined", "call.ended", "call.missed",
      "token.dead",
    ]
  }

  package struct App: Sendable, Equatable {
    /// The value of `push.outbox.app`.
    package var name: String
    /// The dialect, with the app's own templates.
    package var dialect: Dialect
    /// The language, as a BCP 47 tag, for devices without a supported one.
    package var locale: String?
    /// Shown for a caller or sender whose payload has no `fromName`; nil: the dialect shows `from`.
    package var unknownName: String?
    package var ringSeconds: Int
    /// Time after which the next channel is tried for a user none of whose phones has reported that it rings; nil:
    /// never.
    package var escalateAfterSeconds: Int?
    /// Whether a missed call or notification is sent again when its answer was lost.
    package var isAtLeastOnce: Bool
    /// Nil: one phone of each user shows missed calls that gateways announce, and every phone shows those that the
    /// backend enqueues.
    package var missedCalls: MissedCalls?
    /// Android's channel for missed calls; nil: the dialect's.
    package var missedCallChannel: String?
    /// Whether a cancel is also sent to VoIP tokens.
    package var hasVoIPCancel = false
    /// Whether the text of a message may be enqueued, and is sent.
    package var sendsMessageText = false
    package var quota = Quota()
    /// The proxy for connections to providers; nil for none.
    package var proxy: Proxy?
    package var invalidation: Invalidation
    /// The file with the app's own templates, which is read again when it changes.
    package var templatesFile: String?
    package var apns: APNs?
    package var fcm: FCM?
    package var expo: Expo?
    package var webPush: WebPush?
    package var webhook: Webhook?
    /// The app ids of the app's Matrix pushers; nil: homeservers send nothing to it.
    package var matrix: MatrixAppIDs?

    /// Whether it has iPhones that can answer only a call whose id is a UUID in small letters.
    package var needsUUID: Bool { apns != nil && dialect.needsUUID }

    /// The providers that are configured.
    package var providers: [ProviderKind] { ProviderKind.allCases.filter(has) }

    private func has(_ kind: ProviderKind) -> Bool {
      switch kind {
      case .apns: apns != nil
      case .fcm: fcm != nil
      case .expo: expo != nil
      case .webpush: webPush != nil
      }
    }
  }

  /// The HTTP API for backends.
  package struct API: Sendable, Equatable {
    package var listener: Listener
    package var bodyMaxBytes: Int
    /// Time limit for a request to arrive, and for the database to answer.
    package var requestTimeoutSeconds: Int
    /// Calls are refused while the oldest invite has waited longer than this.
    package var busyAfterSeconds: Int
    /// Maximum number of requests a second for each key.
    package var ratePerSecond: Int
    package var connectionsMax: Int
    /// The database that the API serves.
    package var database: Database
    /// The proxies whose `X-Forwarded-For` is trusted.
    package var trustedProxies: [IPRange] = []
    /// Nil: clear text.
    package var tls: ListenerTLS?
    /// The addresses of the homeservers that may use Matrix's Push Gateway API, which needs no key; nil: it is off.
    package var matrixNetworks: [IPRange]?
    /// Nil: gorush's API is off.
    package var gorush: Gorush?
  }

  /// gorush's `POST /api/push`.
  package struct Gorush: Sendable, Equatable {
    /// The addresses from which it needs no key.
    package var networks: [IPRange] = []
    /// The app of requests without a key; nil: every request needs a key.
    package var app: String?
    /// Whether tokens are masked in the answer, as in gorush's default.
    package var hidesTokens = true
  }

  /// An outbox database.
  package struct Database: Sendable, Equatable {
    /// Its name in `databases`; nil for the only database, which has none.
    package var name: String?
    /// It may contain a password, so it must not be logged.
    package var url: String

    package init(name: String? = nil, url: String) {
      self.name = name
      self.url = url
    }
  }

  /// At least one, sorted by name.
  package var databases: [Database]
  package var http: Listener
  /// Maximum number of connections to `http.listen`.
  package var httpConnectionsMax: Int
  /// TLS of `http.listen`; nil: clear text.
  package var httpTLS: ListenerTLS?
  /// Nil if the API is off.
  package var api: API?
  /// Whether `http.listen` serves the dashboard.
  package var hasDashboard: Bool
  package var opsAccess: OpsAccess
  /// A file with certificate authorities that are added to the system's.
  package var caFile: String?
  /// The proxy of the apps that have none of their own.
  package var proxy: Proxy?
  /// Whether files with secrets must be private.
  package var secretPrivacy = SecretFile.Privacy.required
  package var logLevel: Logger.Level
  /// Nil: text on a terminal, otherwise JSON.
  package var logFormat: LogFormat?
  package var drainSeconds: Int
  /// Sorted by name.
  package var apps: [App]

  /// The listeners with TLS, by the name of their section.
  package var listenerTLS: [(name: String, tls: ListenerTLS)] {
    [("http", httpTLS), ("api", api?.tls)].compactMap { name, tls in tls.map { (name, $0) } }
  }
}

// The reasons of APNs, once for all tests.

@testable import Providers

/// A row of the table of docs/protocols.md §1.
struct APNsReasonRow {
  var status: UInt16
  var reason: String
  /// The widest scope of the reason.
  var scope: ReasonScope
  var disposition: AnswerDisposition
  var connection: HTTP2ConnectionPool.ExchangeEffect.Connection

  init(
    _ status: UInt16, _ reason: String, _ scope: ReasonScope, _ disposition: AnswerDisposition,
    _ connection: HTTP2ConnectionPool.ExchangeEffect.Connection
  ) {
    (self.status, self.reason, self.scope, self.disposition, self.connection) =
      (status, reason, scope, disposition, connection)
  }

  /// Written by hand, so that it is independent of the table in the sources.
  static let documented = [
    dead(400, "BadDeviceToken"), rejected(400, "DeviceTokenNotForTopic"), rejected(400, "BadCollapseId"),
    rejected(400, "BadExpirationDate"), rejected(400, "BadMessageId"), rejected(400, "BadPriority"),
    rejected(400, "BadTopic"), rejected(400, "DuplicateHeaders"), rejected(400, "InvalidPushType"),
    rejected(400, "MissingDeviceToken"), rejected(400, "MissingTopic"), rejected(400, "PayloadEmpty"),
    rejected(400, "TopicDisallowed"), Self(400, "IdleTimeout", .lane, .resend, .worn),
    Self(403, "ExpiredProviderToken", .lane, .renewToken, .worn), refused(403, "InvalidProviderToken"),
    refused(403, "MissingProviderToken"), refused(403, "UnrelatedKeyIdInToken", .worn),
    environment("BadEnvironmentKeyInToken"), environment("BadEnvironmentKeyIdInToken"),
    refused(403, "BadCertificate"), refused(403, "BadCertificateEnvironment"), refused(403, "Forbidden"),
    rejected(404, "BadPath"), rejected(405, "MethodNotAllowed"), dead(410, "Unregistered"), dead(410, "ExpiredToken"),
    rejected(413, "PayloadTooLarge"),
    Self(
      429, "TooManyRequests", .token, .settle(.throttled(reason: "TooManyRequests", after: nil, isLaneWide: false)),
      .proven),
    Self(429, "TooManyProviderTokenUpdates", .lane, .keepOlderToken, .unproven),
    unavailable(500, "InternalServerError"), unavailable(503, "ServiceUnavailable"),
    unavailable(503, "Shutdown", .worn),
  ]

  private static func dead(_ status: UInt16, _ reason: String) -> Self {
    Self(status, reason, .token, .settle(.tokenInvalid(reason: reason, since: nil)), .proven)
  }
  private static func rejected(_ status: UInt16, _ reason: String) -> Self {
    Self(status, reason, .token, .settle(.rejected(reason: reason)), .proven)
  }
  private static func refused(
    _ status: UInt16, _ reason: String, _ connection: HTTP2ConnectionPool.ExchangeEffect.Connection = .unproven
  ) -> Self {
    Self(status, reason, .lane, .settle(.unauthorized(reason: reason)), connection)
  }
  private static func environment(_ reason: String) -> Self {
    Self(403, reason, .token, .settle(.unauthorized(reason: reason), .token), .proven)
  }
  private static func unavailable(
    _ status: UInt16, _ reason: String, _ connection: HTTP2ConnectionPool.ExchangeEffect.Connection = .unproven
  ) -> Self {
    Self(status, reason, .lane, .settle(.unavailable(reason: reason, after: nil)), connection)
  }
}

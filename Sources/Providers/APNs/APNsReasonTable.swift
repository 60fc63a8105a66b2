// The answers of APNs and their meaning: Apple, "Handling notification responses from APNs".

internal import Runtime

/// The table of reasons.
enum APNsReasonTable {
  enum Meaning {
    /// The token is dead or was never valid.
    case deadToken
    /// Refused permanently; the token stays.
    case rejected
    /// Too many pushes to this one device.
    case deviceThrottled
    case unavailable
    /// As `unavailable`, and this connection is about to close.
    case closing
    /// Our credentials or their environment are wrong.
    case credentials
    /// The key is not for this environment, but may be right for the other one: some phones are of an environment that the key was not
    /// made for. Phones of the other one are not affected.
    case environment
    /// The credentials may be wrong only for this connection, because APNs ties a connection to its first key.
    case connectionCredentials
    case expiredProviderToken
    case idleConnection
    case tokenUpdatedTooOften

    var scope: ReasonScope {
      switch self {
      case .deadToken, .rejected, .deviceThrottled, .environment: .token
      case .unavailable, .closing, .credentials, .connectionCredentials, .expiredProviderToken, .idleConnection,
        .tokenUpdatedTooOften:
        .lane
      }
    }
  }

  struct Row {
    let status: UInt16
    let reason: String
    let meaning: Meaning

    init(_ status: UInt16, _ reason: String, _ meaning: Meaning) {
      self.status = status
      self.reason = reason
      self.meaning = meaning
    }
  }

  /// Apple's table "APNs error strings", row by row. BadEnvironmentKeyIdInToken is listed in both spellings that occur.
  static let rows: [Row] = [
    // May mean that the token belongs to the other environment. Environments are compared before the token is invalidated.
    Row(400, "BadDeviceToken", .deadToken),
    // A configuration error, not a fault of the token.
    Row(400, "DeviceTokenNotForTopic", .rejected),
    Row(400, "BadCollapseId", .rejected),
    Row(400, "BadExpirationDate", .rejected),
    Row(400, "BadMessageId", .rejected),
    Row(400, "BadPriority", .rejected),
    Row(400, "BadTopic", .rejected),
    Row(400, "DuplicateHeaders", .rejected),
    Row(400, "InvalidPushType", .rejected),
    Row(400, "MissingDeviceToken", .rejected),
    Row(400, "MissingTopic", .rejected),
    Row(400, "PayloadEmpty", .rejected),
    Row(400, "TopicDisallowed", .rejected),
    Row(400, "IdleTimeout", .idleConnection),
    Row(403, "ExpiredProviderToken", .expiredProviderToken),
    Row(403, "InvalidProviderToken", .credentials),
    Row(403, "MissingProviderToken", .credentials),
    Row(403, "UnrelatedKeyIdInToken", .connectionCredentials),
    Row(403, "BadEnvironmentKeyInToken", .environment),
    Row(403, "BadEnvironmentKeyIdInToken", .environment),
    Row(403, "BadCertificate", .credentials),
    Row(403, "BadCertificateEnvironment", .credentials),
    Row(403, "Forbidden", .credentials),
    Row(404, "BadPath", .rejected),
    Row(405, "MethodNotAllowed", .rejected),
    Row(410, "Unregistered", .deadToken),
    Row(410, "ExpiredToken", .deadToken),
    Row(413, "PayloadTooLarge", .rejected),
    Row(429, "TooManyRequests", .deviceThrottled),
    Row(429, "TooManyProviderTokenUpdates", .tokenUpdatedTooOften),
    Row(500, "InternalServerError", .unavailable),
    Row(503, "ServiceUnavailable", .unavailable),
    Row(503, "Shutdown", .closing),
  ]

  /// 1970 to 2200 in milliseconds. Times are clamped to this range so that arithmetic on them cannot overflow.
  private static let times: ClosedRange<Int64> = 0...7_258_118_400_000

  private static let byReason: [String: Row] = Dictionary(rows.map { ($0.reason, $0) }) { first, _ in first }

  /// Reads an answer. Returns what to do and what the answer says about its connection.
  static func read(
    _ response: borrowing HTTP2Message
  ) -> (AnswerDisposition, HTTP2ConnectionPool.ExchangeEffect.Connection) {
    let status = response.status
    if status == 200 {
      let id = response.headers["apns-id"].flatMap(SafeProviderText.messageID)
      return (.settle(.accepted(messageID: id)), .proven)
    }
    let body = try? JSONScanner(response.body)
    let reason = body.flatMap { body in body.member("reason").flatMap { SafeProviderText.reason($0, in: body) } }
    // A reason counts only with its own status. Otherwise an outage whose answers name token reasons would invalidate tokens.
    guard let reason, let row = byReason[reason], row.status == status else {
      return unlisted(status, reason, retryAfter(response))
    }
    let since = body.flatMap { body in body.member("timestamp").flatMap(body.integer) }
      .map { min(max($0, times.lowerBound), times.upperBound) }
    switch row.meaning {
    case .deadToken: return (.settle(.tokenInvalid(reason: reason, since: since)), .proven)
    case .rejected: return (.settle(.rejected(reason: reason)), .proven)
    case .deviceThrottled:
      return (.settle(.throttled(reason: reason, after: retryAfter(response), isLaneWide: false)), .proven)
    case .unavailable: return (.settle(.unavailable(reason: reason, after: retryAfter(response))), .unproven)
    case .closing: return (.settle(.unavailable(reason: reason, after: retryAfter(response))), .worn)
    case .credentials: return (.settle(.unauthorized(reason: reason)), .unproven)
    case .environment: return (.settle(.unauthorized(reason: reason), .token), .proven)
    case .connectionCredentials: return (.settle(.unauthorized(reason: reason)), .worn)
    case .expiredProviderToken: return (.renewToken, .worn)
    case .idleConnection: return (.resend, .worn)
    case .tokenUpdatedTooOften: return (.keepOlderToken, .unproven)
    }
  }

  /// Reads an answer with an unlisted reason, or with a body that is not Apple's (empty, cut off, HTML of a proxy). The status
  /// decides. An answer without a reason invalidates no token and ends no push. Apple gives a reason with every refusal, so such an
  /// answer comes from a middlebox, and the next attempt may succeed.
  private static func unlisted(
    _ status: UInt16, _ reason: String?, _ retryAfter: Nanoseconds?
  ) -> (AnswerDisposition, HTTP2ConnectionPool.ExchangeEffect.Connection) {
    let text = reason ?? "status \(status) without a readable reason"
    switch status {
    case 401, 403: return (.settle(.unauthorized(reason: text)), .unproven)
    case 429: return (.settle(.throttled(reason: text, after: retryAfter, isLaneWide: false)), .unproven)
    case 400..<500 where reason == nil, 408, 425, 500..<600:
      return (.settle(.unavailable(reason: text, after: retryAfter)), .unproven)
    case 410: return (.settle(.tokenInvalid(reason: text, since: nil)), .proven)
    case 400..<500: return (.settle(.rejected(reason: text)), .unproven)
    default: return (.settle(.unavailable(reason: "unexpected status \(status)", after: retryAfter)), .unproven)
    }
  }

  /// Retry-After in seconds. APNs does not document this field, so dates are not parsed.
  private static func retryAfter(_ response: borrowing HTTP2Message) -> Nanoseconds? {
    response.headers.text("retry-after").flatMap { Int64($0) }.map { .seconds(min(max($0, 0), 86_400)) }
  }
}

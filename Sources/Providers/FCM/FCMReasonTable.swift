// The answers of FCM and their meaning, with sources.
//
// [codes]  firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode
// [errors] firebase.google.com/docs/cloud-messaging/error-codes
// [aip]    google.aip.dev/193: the errors of every Google API, also if the request did not reach FCM

internal import Runtime

/// The table of reasons.
enum FCMReasonTable {
  enum Meaning: Equatable {
    /// The token is dead or belongs to another project.
    case deadToken
    /// The token is dead if FCM names the token as the cause. Otherwise our request is wrong.
    case invalidArgument
    /// The credentials that Firebase holds for Apple or for web push are refused. No push to such a device is accepted; pushes to
    /// Android phones are not affected.
    case rejected
    /// Credentials or configuration are wrong: no push of this lane will be accepted.
    case unauthorized
    case accessTokenRefused
    /// Too many messages: for the whole project if FCM says so, otherwise for one device.
    case quota
    /// Too many messages: for the whole project if FCM says so or names a time, otherwise for one device.
    case throttled
    case unavailable
  }

  struct Row: Sendable {
    let status: UInt16
    let code: String
    /// Whether `code` is FcmError's `errorCode`. Otherwise it is the `status` of an error without FcmError, which says
    /// nothing about the token.
    let isFCMError: Bool
    let meaning: Meaning
    /// The widest scope of the reason. The answer may narrow it.
    let scope: ReasonScope
    let source: String
  }

  static let rows = [
    row(400, "INVALID_ARGUMENT", isFCMError: true, .invalidArgument, .token, "[codes]"),
    row(400, "INVALID_ARGUMENT", isFCMError: false, .invalidArgument, .token, "[errors] size"),
    row(401, "THIRD_PARTY_AUTH_ERROR", isFCMError: true, .rejected, .platform, "[codes] iOS and web push only"),
    row(401, "UNAUTHENTICATED", isFCMError: false, .accessTokenRefused, .lane, "[aip]"),
    row(403, "SENDER_ID_MISMATCH", isFCMError: true, .deadToken, .token, "[codes]"),
    row(403, "PERMISSION_DENIED", isFCMError: false, .unauthorized, .lane, "[aip] role or API"),
    row(404, "UNREGISTERED", isFCMError: true, .deadToken, .token, "[codes]"),
    row(404, "NOT_FOUND", isFCMError: false, .unauthorized, .lane, "[aip] project or URL"),
    row(429, "QUOTA_EXCEEDED", isFCMError: true, .quota, .lane, "[codes] message, device or topic rate: QuotaFailure"),
    row(429, "RESOURCE_EXHAUSTED", isFCMError: false, .throttled, .lane, "[aip]"),
    row(500, "INTERNAL", isFCMError: true, .unavailable, .lane, "[codes]"),
    row(503, "UNAVAILABLE", isFCMError: true, .unavailable, .lane, "[codes]"),
  ]

  private static func row(
    _ status: UInt16, _ code: String, isFCMError: Bool, _ meaning: Meaning, _ scope: ReasonScope, _ source: String
  ) -> Row {
    Row(status: status, code: code, isFCMError: isFCMError, meaning: meaning, scope: scope, source: source)
  }

  /// The wait after 429 for the whole project without Retry-After. [errors]
  static let throttleDefault = Nanoseconds.seconds(60)

  /// - Parameter wallMilliseconds: the current time, for a Retry-After that is a date.
  static func read(_ response: borrowing HTTP2Message, wallMilliseconds: Int64) -> AnswerDisposition {
    let status = response.status
    let json = try? JSONScanner(response.body)
    if status == 200 {
      guard let name = json.flatMap({ json in json.member("name").flatMap(json.string) }) else {
        return .settle(.unknown(reason: "MalformedAnswer"))
      }
      return .settle(.accepted(messageID: SafeProviderText.messageID(name)))
    }
    let after = response.headers["retry-after"].flatMap {
      RetryAfter.parse(Array($0), date: response.headers["date"].map { Array($0) }, wallMilliseconds: wallMilliseconds)
    }
    guard let error = json.flatMap(FCMErrorBody.init),
      let row = rows.first(where: { $0.status == status && $0.code == error.code && $0.isFCMError == error.isFCMError })
    else { return unlisted(status, after) }
    switch row.meaning {
    case .deadToken: return .settle(.tokenInvalid(reason: row.code, since: nil))
    case .invalidArgument:
      return .settle(
        error.blamesToken ? .tokenInvalid(reason: row.code, since: nil) : .rejected(reason: row.code))
    case .rejected: return .settle(.rejected(reason: row.code))
    case .unauthorized: return .settle(.unauthorized(reason: row.code))
    case .accessTokenRefused: return .renewToken
    case .quota, .throttled:
      guard error.quotaScope == .project || row.meaning == .throttled && after != nil else {
        return .settle(.throttled(reason: row.code, after: after, isLaneWide: false))
      }
      return .settle(.throttled(reason: row.code, after: after ?? throttleDefault, isLaneWide: true))
    case .unavailable: return .settle(.unavailable(reason: row.code, after: after))
    }
  }

  /// Reads an answer with an unlisted code, or with a body that is not FCM's (HTML of a front end). The status decides, and no
  /// token is invalidated.
  private static func unlisted(_ status: UInt16, _ after: Nanoseconds?) -> AnswerDisposition {
    let reason = "HTTP\(status)"
    switch status {
    case 401: return .renewToken
    case 300...399, 403, 404, 405: return .settle(.unauthorized(reason: reason))
    case 408, 425: return .settle(.unavailable(reason: reason, after: after))
    // One phone that gets too many messages must not silence the others, so only a time is taken to be meant for all.
    case 429: return .settle(.throttled(reason: reason, after: after, isLaneWide: after != nil))
    case 400...499: return .settle(.rejected(reason: reason))
    default: return .settle(.unavailable(reason: reason, after: after))
    }
  }
}

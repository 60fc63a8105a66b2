// What Expo may say, and what it means for a push. Data with its sources; the code that reads answers is ExpoAnswer's,
// ExpoReceiptsAnswer's and ExpoRefusal's.
//
// [send]  docs.expo.dev/push-notifications/sending-notifications
// [rcpt]  the same page, "Push receipt errors"
// [http]  RFC 9110 and the same page's "Request errors": retry network trouble, 429 and 5xx, never a plain 400

internal import Runtime

/// Expo's errors, by where they occur.
enum ExpoReasonTable {
  enum Meaning: Equatable, Sendable {
    case tokenInvalid
    case rejected
    /// Too many for this device.
    case throttled
    /// Too many for the project: slows the lane.
    case throttledLane
    case unavailable
    /// Credentials or configuration.
    case unauthorized
    /// Messages of several projects in one request: send each project's by themselves.
    case splitByProject
    /// Too many messages in one request: send fewer at a time.
    case sendFewer

    /// What becomes of a push this is the last word on.
    func outcome(reason: String, after: Nanoseconds? = nil) -> PushOutcome {
      switch self {
      case .tokenInvalid: .tokenInvalid(reason: reason, since: nil)
      case .rejected, .splitByProject, .sendFewer: .rejected(reason: reason)
      case .throttled: .throttled(reason: reason, after: after, isLaneWide: false)
      case .throttledLane: .throttled(reason: reason, after: after, isLaneWide: true)
      case .unavailable: .unavailable(reason: reason, after: after)
      case .unauthorized: .unauthorized(reason: reason)
      }
    }
  }

  struct Row: Sendable {
    let code: String
    let meaning: Meaning
    let scope: ReasonScope
    let source: String
  }

  private static func row(_ code: String, _ meaning: Meaning, _ scope: ReasonScope, _ source: String) -> Row {
    Row(code: code, meaning: meaning, scope: scope, source: source)
  }

  /// `details.error` of a ticket. Credentials are those that Expo holds for one platform: pushes to the other go on.
  static let tickets = [
    row("DeviceNotRegistered", .tokenInvalid, .token, "[send] stop sending to this token"),
    row("MessageTooBig", .rejected, .token, "[send] payload over 4096 bytes"),
    row("MessageRateExceeded", .throttled, .token, "[send] too frequently to the given device"),
    row("MismatchSenderId", .rejected, .platform, "[send] FCM credentials of another project"),
    row("InvalidCredentials", .rejected, .platform, "[send] push credentials are invalid"),
    row("DeveloperError", .rejected, .token, "[send] the message or the project's set-up"),
    row("ExpoError", .unavailable, .lane, "[send] trouble at Expo"),
    row("ProviderError", .unavailable, .lane, "[send] trouble at APNs or FCM, and not said at which"),
  ]

  /// `details.error` of a receipt: what APNs or FCM told Expo, long after the push.
  static let receipts = [
    row("DeviceNotRegistered", .tokenInvalid, .token, "[rcpt] stop sending to this token"),
    row("MessageTooBig", .rejected, .token, "[rcpt] payload over 4096 bytes"),
    row("MessageRateExceeded", .throttled, .token, "[rcpt] too frequently to the given device"),
    row("MismatchSenderId", .rejected, .platform, "[rcpt] FCM credentials of another project"),
    row("InvalidCredentials", .rejected, .platform, "[rcpt] push credentials are invalid"),
    row("DeveloperError", .rejected, .token, "[rcpt] the message or the project's set-up"),
    row("ExpoError", .unavailable, .lane, "[rcpt] trouble at Expo"),
    row("ProviderError", .unavailable, .lane, "[rcpt] trouble at APNs or FCM, and not said at which"),
  ]

  /// `errors[].code` of a whole request.
  static let requests = [
    row("TOO_MANY_REQUESTS", .throttledLane, .lane, "[send] more than 600 notifications a second"),
    row("PUSH_TOO_MANY_EXPERIENCE_IDS", .splitByProject, .project, "[send] tokens of several projects"),
    row("PUSH_TOO_MANY_NOTIFICATIONS", .sendFewer, .lane, "[send] more than 100 messages"),
    row("PUSH_TOO_MANY_RECEIPTS", .rejected, .lane, "[send] more than 1000 receipt ids"),
    row("UNAUTHORIZED", .unauthorized, .lane, "[send] access token missing or wrong"),
  ]

  /// A status whose body says nothing we know.
  static func meaning(status: UInt16) -> Meaning {
    switch status {
    case 401, 403: .unauthorized  // [http] credentials
    case 300...399, 404, 405: .unauthorized  // [http] not the URL of the push service
    case 408, 425: .unavailable  // [http] may be repeated
    case 429: .throttledLane  // [http]
    case 400...499: .rejected  // [http] the request itself
    default: .unavailable  // [http] 5xx, and what no server should say
    }
  }

  static func ticket(_ code: String) -> Row? { tickets.first { $0.code == code } }
  static func receipt(_ code: String) -> Row? { receipts.first { $0.code == code } }
  static func request(_ code: String) -> Row? { requests.first { $0.code == code } }

  /// `details.error` of a ticket or receipt.
  static func errorCode(of value: JSONScanner.Value, in json: JSONScanner) -> String? {
    let error = json.member("details", of: value).flatMap { json.member("error", of: $0) }
    return error.flatMap { SafeProviderText.reason($0, in: json) }
  }

  /// No answer at all.
  static func outcome(of failure: CurlFailure) -> PushOutcome {
    let reason = failure.reason.rawValue
    return switch failure.reason {
    case .deadlinePassed: .expired
    case .addressNotAllowed, .malformedRequest, .rootsUnusable: .unauthorized(reason: reason)
    case _ where failure.sentAt != nil: .unknown(reason: reason)
    case .closed, .withheld: .refused(reason: reason)
    default: .unavailable(reason: reason, after: nil)
    }
  }
}

// Expo's error codes and their meaning for a push, with sources. ExpoAnswer, ExpoReceiptsAnswer and ExpoRefusal read the answers.
//
// [send]  docs.expo.dev/push-notifications/sending-notifications
// [rcpt]  the same page, "Push receipt errors"
// [http]  RFC 9110 and the same page's "Request errors": retry after network errors, 429 and 5xx, never after a plain 400

internal import Runtime

/// Expo's error codes, by the part of the answer in which they occur.
enum ExpoReasonTable {
  enum Meaning: Equatable, Sendable {
    case tokenInvalid
    case rejected
    /// Too many messages for this device.
    case throttled
    /// Too many messages for the project: slows the lane down.
    case throttledLane
    case unavailable
    /// Credentials or configuration are wrong.
    case unauthorized
    /// A request has messages of several projects: send the messages of each project separately.
    case splitByProject
    /// A request has too many messages: send fewer in each request.
    case sendFewer

    /// The outcome of a push whose final answer has this meaning.
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

  /// `details.error` of a ticket. Credential errors concern what Expo holds for one platform. Pushes to the other platform are not
  /// affected.
  static let tickets = [
    row("DeviceNotRegistered", .tokenInvalid, .token, "[send] stop sending to this token"),
    row("MessageTooBig", .rejected, .token, "[send] payload over 4096 bytes"),
    row("MessageRateExceeded", .throttled, .token, "[send] too frequently to the given device"),
    row("MismatchSenderId", .rejected, .platform, "[send] FCM credentials of another project"),
    row("InvalidCredentials", .rejected, .platform, "[send] push credentials are invalid"),
    row("DeveloperError", .rejected, .token, "[send] the message or the project's set-up"),
    row("ExpoError", .unavailable, .lane, "[send] trouble at Expo"),
    row("ProviderError", .unavailable, .lane, "[send] trouble at APNs or FCM, without saying which"),
  ]

  /// `details.error` of a receipt: the answer of APNs or FCM to Expo. It arrives long after the push.
  static let receipts = [
    row("DeviceNotRegistered", .tokenInvalid, .token, "[rcpt] stop sending to this token"),
    row("MessageTooBig", .rejected, .token, "[rcpt] payload over 4096 bytes"),
    row("MessageRateExceeded", .throttled, .token, "[rcpt] too frequently to the given device"),
    row("MismatchSenderId", .rejected, .platform, "[rcpt] FCM credentials of another project"),
    row("InvalidCredentials", .rejected, .platform, "[rcpt] push credentials are invalid"),
    row("DeveloperError", .rejected, .token, "[rcpt] the message or the project's set-up"),
    row("ExpoError", .unavailable, .lane, "[rcpt] trouble at Expo"),
    row("ProviderError", .unavailable, .lane, "[rcpt] trouble at APNs or FCM, without saying which"),
  ]

  /// `errors[].code` of a whole request.
  static let requests = [
    row("TOO_MANY_REQUESTS", .throttledLane, .lane, "[send] more than 600 notifications a second"),
    row("PUSH_TOO_MANY_EXPERIENCE_IDS", .splitByProject, .project, "[send] tokens of several projects"),
    row("PUSH_TOO_MANY_NOTIFICATIONS", .sendFewer, .lane, "[send] more than 100 messages"),
    row("PUSH_TOO_MANY_RECEIPTS", .rejected, .lane, "[send] more than 1000 receipt ids"),
    row("UNAUTHORIZED", .unauthorized, .lane, "[send] access token missing or wrong"),
  ]

  /// The meaning of a status whose body has no known code.
  static func meaning(status: UInt16) -> Meaning {
    switch status {
    case 401, 403: .unauthorized  // [http] credentials
    case 300...399, 404, 405: .unauthorized  // [http] wrong URL of the push service
    case 408, 425: .unavailable  // [http] may be repeated
    case 429: .throttledLane  // [http]
    case 400...499: .rejected  // [http] the request itself
    default: .unavailable  // [http] 5xx, and statuses that no server should send
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

  /// The outcome of a request without an answer.
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

// What Expo may say, and what it means for a push. Data with its sources; the code that reads answers is ExpoAnswer's.
//
// [send]  docs.expo.dev/push-notifications/sending-notifications
// [http]  RFC 9110 and the same page's "Request errors": retry network trouble, 429 and 5xx, never a plain 400

/// Expo's errors, by where they occur.
enum ExpoReasonTable {
  enum Verdict: Equatable, Sendable {
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
  }

  struct Row: Sendable {
    let code: String
    let verdict: Verdict
    let source: String
  }

  /// `details.error` of a ticket (and of a receipt).
  static let tickets = [
    Row(code: "DeviceNotRegistered", verdict: .tokenInvalid, source: "[send] stop sending to this token"),
    Row(code: "MessageTooBig", verdict: .rejected, source: "[send] payload over 4096 bytes"),
    Row(code: "MessageRateExceeded", verdict: .throttled, source: "[send] too frequently to the given device"),
    Row(code: "MismatchSenderId", verdict: .unauthorized, source: "[send] FCM credentials of another project"),
    Row(code: "InvalidCredentials", verdict: .unauthorized, source: "[send] push credentials are invalid"),
    Row(code: "DeveloperError", verdict: .rejected, source: "[send] the message or the project's set-up"),
    Row(code: "ExpoError", verdict: .unavailable, source: "[send] trouble at Expo"),
    Row(code: "ProviderError", verdict: .unavailable, source: "[send] trouble at APNs or FCM"),
  ]

  /// `errors[].code` of a whole request.
  static let requests = [
    Row(code: "TOO_MANY_REQUESTS", verdict: .throttledLane, source: "[send] more than 600 notifications a second"),
    Row(code: "PUSH_TOO_MANY_EXPERIENCE_IDS", verdict: .splitByProject, source: "[send] tokens of several projects"),
    Row(code: "PUSH_TOO_MANY_NOTIFICATIONS", verdict: .rejected, source: "[send] more than 100 messages"),
    Row(code: "PUSH_TOO_MANY_RECEIPTS", verdict: .rejected, source: "[send] more than 1000 receipt ids"),
    Row(code: "UNAUTHORIZED", verdict: .unauthorized, source: "[send] access token missing or wrong"),
  ]

  /// A status whose body says nothing we know.
  static func verdict(status: UInt16) -> Verdict {
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
  static func request(_ code: String) -> Row? { requests.first { $0.code == code } }
}

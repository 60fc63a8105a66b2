// What FCM answers and what each answer means. Data with its sources, and the one place that reads FCM's error bodies.
//
// [codes]  firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode
// [errors] firebase.google.com/docs/cloud-messaging/error-codes
// [aip]    google.aip.dev/193: what every Google API answers, FCM behind it or not

internal import Runtime

/// The table of reasons.
enum FCMReasonTable {
  enum Meaning: Equatable {
    /// The token is dead, or another project's.
    case deadToken
    /// The token is dead if FCM says that the field is the token; otherwise the fault is ours.
    case invalidArgument
    /// Credentials or configuration: nothing in this lane will be accepted.
    case unauthorized
    case accessTokenRefused
    /// Too fast, for the whole project.
    case throttledLane
    case unavailable
  }

  struct Row: Sendable {
    let status: UInt16
    let code: String
    /// Whether `code` is FcmError's `errorCode`; otherwise it is the `status` of an error without FcmError, which says
    /// nothing about the token.
    let isFCMError: Bool
    let meaning: Meaning
    let source: String
  }

  static let rows = [
    Row(status: 400, code: "INVALID_ARGUMENT", isFCMError: true, meaning: .invalidArgument, source: "[codes]"),
    Row(
      status: 400, code: "INVALID_ARGUMENT", isFCMError: false, meaning: .invalidArgument, source: "[errors] size"),
    Row(status: 401, code: "THIRD_PARTY_AUTH_ERROR", isFCMError: true, meaning: .unauthorized, source: "[codes]"),
    Row(status: 401, code: "UNAUTHENTICATED", isFCMError: false, meaning: .accessTokenRefused, source: "[aip]"),
    Row(status: 403, code: "SENDER_ID_MISMATCH", isFCMError: true, meaning: .deadToken, source: "[codes]"),
    Row(status: 403, code: "PERMISSION_DENIED", isFCMError: false, meaning: .unauthorized, source: "[aip] role or API"),
    Row(status: 404, code: "UNREGISTERED", isFCMError: true, meaning: .deadToken, source: "[codes]"),
    Row(status: 404, code: "NOT_FOUND", isFCMError: false, meaning: .unauthorized, source: "[aip] project or URL"),
    Row(status: 429, code: "QUOTA_EXCEEDED", isFCMError: true, meaning: .throttledLane, source: "[codes]"),
    Row(status: 429, code: "RESOURCE_EXHAUSTED", isFCMError: false, meaning: .throttledLane, source: "[aip]"),
    Row(status: 500, code: "INTERNAL", isFCMError: true, meaning: .unavailable, source: "[codes]"),
    Row(status: 503, code: "UNAVAILABLE", isFCMError: true, meaning: .unavailable, source: "[codes]"),
  ]

  /// How long to wait after 429 without Retry-After. [errors]
  static let throttleDefault = Nanoseconds.seconds(60)

  /// - Parameter wallMilliseconds: now, for a Retry-After that is a date.
  static func read(_ response: borrowing HTTP2Message, wallMilliseconds: Int64) -> AnswerDisposition {
    let status = response.status
    let json = try? JSONScanner(response.body)
    if status == 200 {
      guard let name = json.flatMap({ json in json.member("name").flatMap(json.string) }) else {
        return .settle(.unknown(reason: "MalformedAnswer"))
      }
      return .settle(.accepted(messageID: AnswerWord.messageID(name)))
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
    case .unauthorized: return .settle(.unauthorized(reason: row.code))
    case .accessTokenRefused: return .renewToken
    case .throttledLane:
      return .settle(.throttled(reason: row.code, after: after ?? throttleDefault, isLaneWide: true))
    case .unavailable: return .settle(.unavailable(reason: row.code, after: after))
    }
  }

  /// A code that is not in the table, or a body that is none of FCM's (a front end's HTML): the status decides, and no
  /// token dies.
  private static func unlisted(_ status: UInt16, _ after: Nanoseconds?) -> AnswerDisposition {
    let reason = "HTTP\(status)"
    switch status {
    case 401: return .renewToken
    case 300...399, 403, 404, 405: return .settle(.unauthorized(reason: reason))
    case 408, 425: return .settle(.unavailable(reason: reason, after: after))
    case 429: return .settle(.throttled(reason: reason, after: after ?? throttleDefault, isLaneWide: true))
    case 400...499: return .settle(.rejected(reason: reason))
    default: return .settle(.unavailable(reason: reason, after: after))
    }
  }
}

/// The parts of `{"error":{"status":…,"details":[…]}}` that decide something.
private struct FCMErrorBody {
  private static let fcmError = Array("type.googleapis.com/google.firebase.fcm.v1.FcmError".utf8)
  private static let badRequest = Array("type.googleapis.com/google.rpc.BadRequest".utf8)
  private static let tokenField = Array("message.token".utf8)

  var code = ""
  var isFCMError = false
  /// A field violation names the token.
  var blamesToken = false

  init?(_ json: JSONScanner) {
    guard let error = json.member("error"), error.kind == .object else { return nil }
    code = json.member("status", of: error).flatMap(json.text) ?? ""
    guard let details = json.member("details", of: error) else { return }
    for detail in json.elements(of: details) {
      let type = json.member("@type", of: detail).flatMap(json.string)
      if type == Self.fcmError, let errorCode = json.member("errorCode", of: detail).flatMap(json.text) {
        code = errorCode
        isFCMError = true
      } else if type == Self.badRequest, let violations = json.member("fieldViolations", of: detail) {
        blamesToken = json.elements(of: violations).contains {
          json.member("field", of: $0).flatMap(json.string) == Self.tokenField
        }
      }
    }
  }
}

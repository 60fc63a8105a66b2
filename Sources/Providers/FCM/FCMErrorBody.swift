// Reads the error body of Google's APIs (AIP-193, google.rpc.Status), as far as it matters for the outcome.

internal import Runtime

/// The parts of `{"error":{"status":…,"message":…,"details":[…]}}` that the reason table uses.
struct FCMErrorBody {
  private static let fcmError = Array("type.googleapis.com/google.firebase.fcm.v1.FcmError".utf8)
  private static let badRequest = Array("type.googleapis.com/google.rpc.BadRequest".utf8)
  private static let quotaFailure = Array("type.googleapis.com/google.rpc.QuotaFailure".utf8)
  private static let tokenField = Array("message.token".utf8)
  /// The message of real answers to an invalid token. These answers contain no field violation (firebase-admin-java issue 1064).
  private static let invalidToken = "The registration token is not a valid FCM registration token"

  /// FcmError's `errorCode` if there is one, otherwise the error's `status`.
  private(set) var code = ""
  private(set) var isFCMError = false
  /// Whether a field violation or the message names the token.
  private(set) var blamesToken = false
  /// Whose rate was too high: one device's, unless the answer names the project or a topic.
  private(set) var quotaScope = ReasonScope.token

  /// Nil if the body is not an error of Google's APIs.
  init?(_ json: JSONScanner) {
    guard let error = json.member("error"), error.kind == .object else { return nil }
    code = json.member("status", of: error).flatMap(json.text) ?? ""
    let message = json.member("message", of: error).flatMap(json.text) ?? ""
    blamesToken = message.contains(Self.invalidToken)
    quotaScope = Self.quotaScope(of: message) ?? .token
    guard let details = json.member("details", of: error) else { return }
    for detail in json.elements(of: details) {
      let type = json.member("@type", of: detail).flatMap(json.string)
      if type == Self.fcmError, let errorCode = json.member("errorCode", of: detail).flatMap(json.text) {
        code = errorCode
        isFCMError = true
      } else if type == Self.badRequest, let violations = json.member("fieldViolations", of: detail) {
        blamesToken =
          blamesToken
          || json.elements(of: violations).contains {
            json.member("field", of: $0).flatMap(json.string) == Self.tokenField
          }
      } else if type == Self.quotaFailure, let violations = json.member("violations", of: detail) {
        quotaScope = Self.quotaScope(of: violations, in: json) ?? quotaScope
      }
    }
  }

  /// The widest scope that the violations name; nil if they name none.
  private static func quotaScope(of violations: JSONScanner.Value, in json: JSONScanner) -> ReasonScope? {
    var widest: ReasonScope?
    for violation in json.elements(of: violations) {
      for text in [json.member("subject", of: violation), json.member("description", of: violation)] {
        guard let scope = text.flatMap(json.text).flatMap(quotaScope(of:)) else { continue }
        widest = max(widest ?? scope, scope)
      }
    }
    return widest
  }

  /// The scope that a text names; nil if it names none. Google documents three quotas: messages to a device, messages to a topic
  /// and all messages of a project. Google does not document the texts of their violations, so keywords decide. "device" takes
  /// precedence, because a text about a device may name its project, too.
  private static func quotaScope(of text: String) -> ReasonScope? {
    let text = text.lowercased()
    if text.contains("device") { return .token }
    return ["topic", "project", "quota metric", "per minute"].contains { text.contains($0) } ? .project : nil
  }
}

// The error bodies of FCM HTTP v1: google.rpc.Status with FCM's own details.

internal import Runtime

/// An error of FCM as it is sent.
struct FCMError: Error {
  let status: Int
  /// google.rpc.Code: INVALID_ARGUMENT, NOT_FOUND…
  let code: String
  /// The FcmError detail's code; nil where Google gives none.
  var errorCode: String?
  let message: String
  /// The field violations of a BadRequest: the field and its error.
  var violations: [(field: String, description: String)] = []
  /// The violation of a QuotaFailure: the owner of the quota, and its name.
  var quota: (subject: String, description: String)?

  /// The name under which the error is counted.
  var reason: String { errorCode ?? code }

  /// The body, formatted as Google formats it.
  var answer: SimulatedAnswer {
    SimulatedAnswer(status: status, contentType: .json, body: body)
  }

  private var body: [UInt8] {
    var writer = JSONWriter(reservingCapacity: 512)
    writer.beginObject()
    writer.key("error")
    writer.beginObject()
    writer.key("code")
    writer.integer(Int64(status))
    writer.key("message")
    writer.string(message)
    writer.key("status")
    writer.string(code)
    if errorCode != nil || !violations.isEmpty || quota != nil {
      writer.key("details")
      writer.beginArray()
      if let errorCode {
        writer.beginObject()
        writer.key("@type")
        writer.string("type.googleapis.com/google.firebase.fcm.v1.FcmError" as StaticString)
        writer.key("errorCode")
        writer.string(errorCode)
        writer.endObject()
      }
      if !violations.isEmpty { write(violations, to: &writer) }
      if let quota { write(quota, to: &writer) }
      writer.endArray()
    }
    writer.endObject()
    writer.endObject()
    return writer.bytes
  }

  private func write(_ violations: [(field: String, description: String)], to writer: inout JSONWriter) {
    writer.beginObject()
    writer.key("@type")
    writer.string("type.googleapis.com/google.rpc.BadRequest" as StaticString)
    writer.key("fieldViolations")
    writer.beginArray()
    for violation in violations {
      writer.beginObject()
      if !violation.field.isEmpty {
        writer.key("field")
        writer.string(violation.field)
      }
      writer.key("description")
      writer.string(violation.description)
      writer.endObject()
    }
    writer.endArray()
    writer.endObject()
  }

  private func write(_ quota: (subject: String, description: String), to writer: inout JSONWriter) {
    writer.beginObject()
    writer.key("@type")
    writer.string("type.googleapis.com/google.rpc.QuotaFailure" as StaticString)
    writer.key("violations")
    writer.beginArray()
    writer.beginObject()
    writer.key("subject")
    writer.string(quota.subject)
    writer.key("description")
    writer.string(quota.description)
    writer.endObject()
    writer.endArray()
    writer.endObject()
  }
}

extension FCMError {
  /// An unknown field, with FCM's message.
  static func unknownName(_ name: String, at path: String) -> FCMError {
    let place = path.isEmpty ? "" : " at '\(path)'"
    let text = "Invalid JSON payload received. Unknown name \"\(name)\"\(place): Cannot find field."
    return FCMError(status: 400, code: "INVALID_ARGUMENT", message: text, violations: [(path, text)])
  }

  /// A value of the wrong type.
  static func invalidValue(at path: String, type: String) -> FCMError {
    let text = "Invalid value at '\(path)' (\(type))"
    return FCMError(status: 400, code: "INVALID_ARGUMENT", message: text, violations: [(path, text)])
  }

  /// A value that FCM itself refuses.
  static func invalidArgument(_ field: String, _ description: String) -> FCMError {
    FCMError(
      status: 400, code: "INVALID_ARGUMENT", errorCode: "INVALID_ARGUMENT", message: description,
      violations: [(field, description)])
  }

  static let invalidToken = FCMError(
    status: 400, code: "INVALID_ARGUMENT", errorCode: "INVALID_ARGUMENT",
    message: "The registration token is not a valid FCM registration token",
    violations: [("message.token", "Invalid registration token")])

  /// The same error as FCM really sends it: without a violation.
  static let invalidTokenInWords = FCMError(
    status: 400, code: "INVALID_ARGUMENT", errorCode: "INVALID_ARGUMENT",
    message: "The registration token is not a valid FCM registration token")

  /// Google gives no details here.
  static let tooBig = FCMError(status: 400, code: "INVALID_ARGUMENT", message: "Android message is too big")

  static let notJSON = FCMError(
    status: 400, code: "INVALID_ARGUMENT", message: "Invalid JSON payload received. Unexpected token.")

  static let unauthenticated = FCMError(
    status: 401, code: "UNAUTHENTICATED",
    message:
      "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
      + "authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.")

  /// A wrong project. It has no FcmError, so it says nothing about the token.
  static let unknownProject = FCMError(
    status: 404, code: "NOT_FOUND", message: "Requested entity was not found.")

  /// The errors that a token or a rule may ask for, by FcmError code.
  static func named(_ name: String) -> FCMError? {
    switch name {
    case "INVALID_ARGUMENT": invalidToken
    case "INVALID_TOKEN": invalidTokenInWords
    case "UNREGISTERED":
      FCMError(
        status: 404, code: "NOT_FOUND", errorCode: name, message: "Requested entity was not found.")
    case "NOT_FOUND": unknownProject
    case "SENDER_ID_MISMATCH":
      FCMError(status: 403, code: "PERMISSION_DENIED", errorCode: name, message: "SenderId mismatch")
    case "QUOTA_EXCEEDED":
      FCMError(
        status: 429, code: "RESOURCE_EXHAUSTED", errorCode: name,
        message: "Quota exceeded for quota metric 'Send requests' and limit 'Send requests per minute'.",
        quota: ("project:simulated", "Message rate exceeded"))
    case "QUOTA_EXCEEDED_DEVICE":
      FCMError(
        status: 429, code: "RESOURCE_EXHAUSTED", errorCode: "QUOTA_EXCEEDED",
        message: "Sending limit exceeded for the message target.",
        quota: ("device:simulated", "Device message rate exceeded"))
    case "THIRD_PARTY_AUTH_ERROR":
      FCMError(
        status: 401, code: "UNAUTHENTICATED", errorCode: name, message: "Auth error from APNS or Web Push Service")
    case "UNAUTHENTICATED": unauthenticated
    case "TOO_BIG": tooBig
    case "INTERNAL":
      FCMError(status: 500, code: "INTERNAL", errorCode: name, message: "Internal error encountered.")
    case "UNAVAILABLE":
      FCMError(status: 503, code: "UNAVAILABLE", errorCode: name, message: "The service is currently unavailable.")
    default: nil
    }
  }

  /// The names that `named` accepts, with their meanings.
  static let names: [(name: String, meaning: String)] = [
    ("INVALID_ARGUMENT", "400, the violation names message.token"),
    ("INVALID_TOKEN", "400, the message names the token, without a violation"),
    ("TOO_BIG", "400 without details"),
    ("UNAUTHENTICATED", "401 without FcmError"),
    ("THIRD_PARTY_AUTH_ERROR", "401"),
    ("SENDER_ID_MISMATCH", "403"),
    ("UNREGISTERED", "404"),
    ("NOT_FOUND", "404 without FcmError"),
    ("QUOTA_EXCEEDED", "429, the project's rate"),
    ("QUOTA_EXCEEDED_DEVICE", "429, the device's rate"),
    ("INTERNAL", "500"),
    ("UNAVAILABLE", "503"),
  ]
}

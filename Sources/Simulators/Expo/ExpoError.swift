// The errors of Expo's push service, for a whole request, a ticket or a receipt.

internal import Runtime

/// An error that refuses a whole request.
struct ExpoError: Error {
  let status: Int
  let code: String
  let message: String
  /// Tokens by project, for PUSH_TOO_MANY_EXPERIENCE_IDS.
  var projects: [(name: String, tokens: [ArraySlice<UInt8>])] = []

  var answer: SimulatedAnswer {
    var writer = JSONWriter(reservingCapacity: 256)
    writer.beginObject()
    writer.key("errors")
    writer.beginArray()
    writer.beginObject()
    writer.key("code")
    writer.string(code)
    writer.key("message")
    writer.string(message)
    if !projects.isEmpty { writeDetails(to: &writer) }
    writer.key("isTransient")
    writer.boolean(status == 429 || status >= 500)
    writer.endObject()
    writer.endArray()
    writer.endObject()
    return SimulatedAnswer(status: status, contentType: .json, body: writer.bytes)
  }

  private func writeDetails(to writer: inout JSONWriter) {
    writer.key("details")
    writer.beginObject()
    for project in projects {
      writer.key(Array(project.name.utf8))
      writer.beginArray()
      for token in project.tokens { writer.string(token) }
      writer.endArray()
    }
    writer.endObject()
  }

  static func validation(_ message: String) -> ExpoError {
    ExpoError(status: 400, code: "VALIDATION_ERROR", message: message)
  }

  static let unauthorized = ExpoError(
    status: 401, code: "UNAUTHORIZED",
    message: "Insufficient permission to send push notifications: a valid access token is required.")

  static let tooManyReceipts = ExpoError(
    status: 400, code: "PUSH_TOO_MANY_RECEIPTS",
    message: "You can get a maximum of 1000 receipts per request; divide your requests.")

  /// The errors that a token or a rule may ask for.
  static func named(_ name: String) -> ExpoError? {
    switch name {
    case "TOO_MANY_REQUESTS":
      ExpoError(status: 429, code: name, message: "Exceeded 600 notifications per second, please try again.")
    case "PUSH_TOO_MANY_EXPERIENCE_IDS":
      ExpoError(
        status: 400, code: name,
        message: "All push notification messages in the same request must be for the same project; check the details "
          + "field to investigate conflicting tokens.")
    case "PUSH_TOO_MANY_NOTIFICATIONS":
      ExpoError(status: 400, code: name, message: "You can send a maximum of 100 notifications per request.")
    case "PUSH_TOO_MANY_RECEIPTS": tooManyReceipts
    case "UNAUTHORIZED": unauthorized
    case "INTERNAL_SERVER_ERROR":
      ExpoError(status: 500, code: name, message: "An unknown error occurred.")
    case "SERVICE_UNAVAILABLE":
      ExpoError(status: 503, code: name, message: "The service is temporarily unavailable.")
    default: nil
    }
  }

  /// The names that `named` accepts, with their meanings.
  static let names: [(name: String, meaning: String)] = [
    ("TOO_MANY_REQUESTS", "429, the whole request"),
    ("PUSH_TOO_MANY_EXPERIENCE_IDS", "400, the whole request"),
    ("PUSH_TOO_MANY_NOTIFICATIONS", "400, the whole request"),
    ("PUSH_TOO_MANY_RECEIPTS", "400, the whole request"),
    ("UNAUTHORIZED", "401, the whole request"),
    ("INTERNAL_SERVER_ERROR", "500, the whole request"),
    ("SERVICE_UNAVAILABLE", "503, the whole request"),
  ]
}

/// An error of one push, in its ticket or in its receipt (`details.error`).
enum ExpoPushError: String, CaseIterable, Sendable {
  case deviceNotRegistered = "DeviceNotRegistered"
  case messageTooBig = "MessageTooBig"
  case messageRateExceeded = "MessageRateExceeded"
  case mismatchSenderId = "MismatchSenderId"
  case invalidCredentials = "InvalidCredentials"
  case developerError = "DeveloperError"
  case expoError = "ExpoError"
  case providerError = "ProviderError"

  /// The name by which a token requests this error in the receipt of an accepted ticket.
  var receiptFaultName: String { "receipt_\(rawValue)" }

  /// - Parameter token: nil in a receipt, whose message does not contain the token.
  func message(_ token: String?) -> String {
    switch self {
    case .deviceNotRegistered:
      token.map { "\"\($0)\" is not a registered push notification recipient" }
        ?? "The recipient device is not registered with FCM or APNs."
    case .messageTooBig: "Message payload is too big: the total must be at most 4096 bytes."
    case .messageRateExceeded: "Messages are sent too frequently to the recipient device."
    case .mismatchSenderId: "The FCM credentials do not match the sender id of the token."
    case .invalidCredentials: "The push notification credentials of the app are invalid."
    case .developerError: "The request to the push provider was malformed."
    case .expoError: "An internal error occurred in the push service."
    case .providerError: "The push provider answered with an error."
    }
  }
}

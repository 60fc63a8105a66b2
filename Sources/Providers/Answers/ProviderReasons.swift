// The reasons that metrics may use as labels: those documented by the providers, and ours for answers without a reason. The fixed
// lists prevent a provider that sends unlimited different reasons from creating unlimited label values.

/// All documented reasons, and our own.
public enum ProviderReasons {
  /// Apple's table.
  public static let apns = APNsReasonTable.rows.map(\.reason)
  /// FCM's and Google's codes.
  public static let fcm = FCMReasonTable.rows.map(\.code)
  /// The error codes with which a token endpoint refuses a service account: RFC 6749 §5.2.
  public static let oauth = [
    "invalid_client", "invalid_grant", "invalid_request", "invalid_scope", "unauthorized_client",
  ]
  /// Expo's errors of tickets, receipts and requests, and the failures of libcurl.
  public static let expo =
    (ExpoReasonTable.tickets + ExpoReasonTable.receipts + ExpoReasonTable.requests).map(\.code)
    + CurlFailure.Reason.allCases.map(\.rawValue) + [
      "TicketCountMismatch", "TicketErrorWithoutCode", "MalformedTicket",
    ]
  /// The reasons of push services, and those of pushes that are refused without a request.
  public static let webpush =
    (WebPushReasonTable.rows + WebPushReasonTable.statuses).map(\.reason) + WebPushRefusal.allCases.map(\.rawValue)
  /// Reasons that may occur with every provider.
  public static let common =
    [
      "ConnectionLost", SendPermit.lapsedReason, "MalformedAnswer", "NoConnection", "NotHedged", "NotSentInTime",
      "RefusedRepeatedly", "ShuttingDown", "TimedOut", "TooManyWaiting", "Withdrawn",
    ] + [400, 401, 403, 404, 405, 408, 413, 425, 429, 500, 502, 503, 504].map { "HTTP\($0)" }

  /// The reasons that refuse credentials for some pushes of a lane: those of an environment of APNs, or of a platform whose
  /// credentials are stored at FCM or Expo.
  public static let ofSomeCredentials = Set(
    APNsReasonTable.rows.filter { $0.meaning == .environment }.map(\.reason)
      + FCMReasonTable.rows.filter { $0.scope == .platform }.map(\.code)
      + (ExpoReasonTable.tickets + ExpoReasonTable.receipts).filter { $0.scope == .platform }.map(\.code))

  /// The HTTP status that APNs or FCM gives with a reason; nil for the reasons of others.
  public static func status(of reason: String) -> UInt16? {
    APNsReasonTable.rows.first { $0.reason == reason }?.status
      ?? FCMReasonTable.rows.first { $0.code == reason }?.status
  }

  /// The reasons of GOAWAY frames: the error codes of RFC 9113 §7 that matter to us. All others are `other`.
  public static let goAways = [
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "ENHANCE_YOUR_CALM", "other",
  ]

  /// The element of `goAways` for the reason of an `HTTP2Connection` that goes away: `GOAWAY CODE: text`.
  static func goAway(_ reason: String) -> String {
    let words = reason.split(whereSeparator: { " :".contains($0) }).prefix(2).map(String.init)
    return words.last.flatMap { goAways.contains($0) ? $0 : nil } ?? "other"
  }
}

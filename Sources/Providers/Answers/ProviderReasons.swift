// The words that providers give as reasons, and ours where they gave none: what metrics may have as labels, without fear of a
// provider that makes up a new word with each answer.

/// Every reason that is documented, or our own.
public enum ProviderReasons {
  /// Apple's table.
  public static let apns = APNsReasonTable.rows.map(\.reason)
  /// FCM's and Google's codes.
  public static let fcm = FCMReasonTable.rows.map(\.code)
  /// Expo's errors of tickets, receipts and requests, and what libcurl failed with.
  public static let expo =
    (ExpoReasonTable.tickets + ExpoReasonTable.receipts + ExpoReasonTable.requests).map(\.code)
    + CurlFailure.Reason.allCases.map(\.rawValue) + [
      "TicketCountMismatch", "TicketErrorWithoutCode", "MalformedTicket",
    ]
  /// What is said of any provider.
  public static let common =
    [
      "ConnectionLost", SendPermit.lapsedReason, "MalformedAnswer", "NoConnection", "NotHedged", "NotSentInTime",
      "RefusedRepeatedly", "ShuttingDown", "TimedOut", "TooManyWaiting", "Withdrawn",
    ] + [400, 401, 403, 404, 405, 408, 413, 425, 429, 500, 502, 503, 504].map { "HTTP\($0)" }

  /// Why a server said GOAWAY, by the error codes of RFC 9113 §7 that mean something to us; any other is `other`.
  public static let goAways = [
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "ENHANCE_YOUR_CALM", "other",
  ]

  /// The word of `goAways` for what an `HTTP2Connection` says when it goes away: `GOAWAY CODE: text`.
  static func goAway(_ reason: String) -> String {
    let words = reason.split(whereSeparator: { " :".contains($0) }).prefix(2).map(String.init)
    return words.last.flatMap { goAways.contains($0) ? $0 : nil } ?? "other"
  }
}

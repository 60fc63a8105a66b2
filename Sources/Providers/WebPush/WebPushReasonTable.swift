// The answers of push services and their meaning, with sources.
//
// [8030]  RFC 8030 §5, §7.2, §7.3 and §8.4: what every push service answers
// [8292]  RFC 8292 §4.2: refused VAPID tokens
// [moz]   mozilla-services.github.io/autopush-rs/errors.html: `errno` of the body, here `errno_NUMBER`
// [apple] developer.apple.com, "Sending web push notifications in web apps and browsers": `reason` of the body
// [wns]   learn.microsoft.com, "Push notification service request and response headers": X-WNS-STATUS
//
// FCM answers with a text for people, so only the status of its answers counts.

internal import Runtime

/// The table of reasons.
enum WebPushReasonTable {
  enum Meaning: Equatable {
    /// The subscription is dead.
    case dead
    /// Refused permanently; the subscription stays.
    case rejected
    /// The VAPID token is refused, for all subscriptions or because this subscription belongs to another key: FCM and Mozilla answer in
    /// the same way to both.
    case credentials
    /// The subscription was made with another VAPID key.
    case otherKey
    /// Too many pushes to this subscription.
    case throttled
    /// Too many pushes to this push service.
    case throttledLane
    case unavailable
  }

  struct Row: Sendable {
    let status: UInt16
    let reason: String
    let meaning: Meaning
    /// The widest scope of the reason.
    let scope: ReasonScope
    let source: String
  }

  private static func row(
    _ status: UInt16, _ reason: String, _ meaning: Meaning, _ scope: ReasonScope, _ source: String
  ) -> Row {
    Row(status: status, reason: reason, meaning: meaning, scope: scope, source: source)
  }

  /// The reasons that a body or a header names.
  static let rows = [
    row(400, "errno_101", .rejected, .token, "[moz] missing crypto keys"),
    row(400, "errno_108", .rejected, .token, "[moz] router type of the endpoint"),
    row(400, "errno_110", .rejected, .token, "[moz] encryption headers"),
    row(400, "errno_111", .rejected, .token, "[moz] missing header"),
    row(400, "errno_112", .rejected, .token, "[moz] TTL"),
    row(400, "errno_113", .rejected, .token, "[moz] Topic"),
    row(400, "errno_114", .rejected, .token, "[moz] negative TTL"),
    row(401, "errno_109", .credentials, .lane, "[moz] Authorization; also another VAPID key"),
    row(404, "errno_102", .dead, .token, "[moz] invalid endpoint"),
    row(410, "errno_103", .dead, .token, "[moz] expired endpoint"),
    row(410, "errno_105", .dead, .token, "[moz] endpoint became unavailable during the request"),
    row(410, "errno_106", .dead, .token, "[moz] invalid subscription"),
    row(413, "errno_104", .rejected, .token, "[moz] more than 4096 bytes, or less for phones"),
    row(429, "errno_201", .throttledLane, .lane, "[moz] a bridge limits the rate"),
    row(500, "errno_999", .unavailable, .lane, "[moz] unknown error"),
    row(502, "errno_900", .unavailable, .lane, "[moz] bridge misconfigured"),
    row(502, "errno_901", .unavailable, .lane, "[moz] bridge authentication"),
    row(502, "errno_902", .unavailable, .lane, "[moz] bridge connection"),
    row(502, "errno_903", .unavailable, .lane, "[moz] bridge timeout"),
    row(503, "errno_201", .unavailable, .lane, "[moz] retry later"),
    row(503, "errno_202", .unavailable, .lane, "[moz] retry at once"),
    row(400, "BadTtl", .rejected, .token, "[apple]"),
    row(400, "BadUrgency", .rejected, .token, "[apple]"),
    row(400, "BadWebPushRequest", .rejected, .token, "[apple] encryption"),
    row(400, "BadWebPushTopic", .rejected, .token, "[apple]"),
    row(400, "VapidPkHashMismatch", .otherKey, .token, "[apple] the subscription was made with another key"),
    row(400, "IdleTimeout", .unavailable, .lane, "[apple]"),
    row(403, "VapidPkHashMismatch", .otherKey, .token, "[apple] the same, as it was also seen"),
    row(403, "BadAuthorizationHeader", .credentials, .lane, "[apple]"),
    row(403, "BadJwtToken", .credentials, .lane, "[apple] signature, sub, aud or exp"),
    row(403, "BadVapidPublicKey", .credentials, .lane, "[apple] parameter k"),
    row(403, "Forbidden", .credentials, .lane, "[apple]"),
    row(404, "BadPath", .dead, .token, "[apple] no such subscription"),
    row(405, "MethodNotAllowed", .rejected, .token, "[apple]"),
    row(410, "ExpiredToken", .dead, .token, "[apple]"),
    row(410, "Unregistered", .dead, .token, "[apple]"),
    row(413, "PayloadTooLarge", .rejected, .token, "[apple] more than 4 KB"),
    row(429, "TooManyRequests", .throttled, .token, "[apple] to one device"),
    row(500, "InternalServerError", .unavailable, .lane, "[apple]"),
    row(503, "ServiceUnavailable", .unavailable, .lane, "[apple]"),
    row(503, "Shutdown", .unavailable, .lane, "[apple]"),
    row(406, "channelthrottled", .throttled, .token, "[wns] this subscription"),
    row(406, "appthrottled", .throttledLane, .lane, "[wns] all subscriptions"),
  ]

  /// The meaning of a status whose answer names no reason of the table.
  static let statuses = [
    row(400, "HTTP400", .rejected, .token, "[8030] our request"),
    row(401, "HTTP401", .credentials, .lane, "[8292] VAPID token"),
    row(403, "HTTP403", .credentials, .lane, "[8292] VAPID token; FCM: another VAPID key"),
    row(404, "HTTP404", .dead, .token, "[8030] expired subscription"),
    row(405, "HTTP405", .rejected, .token, "[8030] our request"),
    row(406, "HTTP406", .throttled, .token, "[wns] too many pushes"),
    row(408, "HTTP408", .unavailable, .lane, "RFC 9110: may be repeated"),
    row(410, "HTTP410", .dead, .token, "[8030] subscription gone"),
    row(413, "HTTP413", .rejected, .token, "[8030] too large"),
    row(425, "HTTP425", .unavailable, .lane, "RFC 8470: may be repeated"),
    row(429, "HTTP429", .throttled, .token, "[8030] too many pushes to a subscription"),
  ]

  /// The outcome of an answer. If it concerns the whole push service, it is `unavailable`, or `throttled` with `isLaneWide`.
  static func read(_ response: borrowing HTTP2Message, wallMilliseconds: Int64) -> PushOutcome {
    let status = response.status
    if status == 201 || status == 200 || status == 202 { return .accepted(messageID: messageID(response)) }
    let after = response.headers["retry-after"].flatMap {
      RetryAfter.parse(Array($0), date: response.headers["date"].map { Array($0) }, wallMilliseconds: wallMilliseconds)
    }
    // A reason counts only with its own status. Otherwise a 503 that names a dead subscription would delete it.
    let reason = reason(response)
    if let row = rows.first(where: { $0.status == status && $0.reason == reason }) { return outcome(of: row, after) }
    if let row = statuses.first(where: { $0.status == status }) { return outcome(of: row, after) }
    let unlisted = "HTTP\(status)"
    // Redirects are not followed. A push service that moves ends its subscriptions with 404 or 410.
    if (300...499).contains(status) { return .rejected(reason: unlisted) }
    return .unavailable(reason: unlisted, after: after)
  }

  private static func outcome(of row: Row, _ after: Nanoseconds?) -> PushOutcome {
    switch row.meaning {
    case .dead: .tokenInvalid(reason: row.reason, since: nil)
    case .rejected, .otherKey: .rejected(reason: row.reason)
    case .credentials: .unauthorized(reason: row.reason)
    case .throttled: .throttled(reason: row.reason, after: after, isLaneWide: false)
    case .throttledLane: .throttled(reason: row.reason, after: after, isLaneWide: true)
    case .unavailable: .unavailable(reason: row.reason, after: after)
    }
  }

  /// The reason that an answer names; nil if it names none.
  private static func reason(_ response: borrowing HTTP2Message) -> String? {
    if let json = try? JSONScanner(response.body), json.root.kind == .object {
      if let number = json.member("errno").flatMap(json.integer), (0...9_999).contains(number) {
        return "errno_\(number)"
      }
      return json.member("reason").flatMap { SafeProviderText.reason($0, in: json) }
    }
    return response.headers.text("x-wns-status")
  }

  /// Apple's ID of the push. `Location` is not kept: it is a URL with which the push can be withdrawn (RFC 8030 §6.2).
  private static func messageID(_ response: borrowing HTTP2Message) -> String? {
    response.headers["apns-id"].flatMap(SafeProviderText.messageID)
  }
}

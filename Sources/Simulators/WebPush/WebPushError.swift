// The errors of push services, as they are sent: Mozilla's JSON with `errno`, Apple's JSON with `reason`, WNS's header, and the
// bare status of the others.

internal import Runtime

/// An error of a push service.
struct WebPushError: Error {
  let status: Int
  /// `errno_NUMBER`, a reason of Apple, a status of WNS, or `HTTP` and the status: the name under which it is counted.
  let reason: String
  /// What was wrong, without any part of an endpoint or a payload.
  var detail = ""

  /// The errors that a subscription or a rule may ask for. Names that two services share have the first service's status; a rule
  /// may name another.
  static let all: [(status: Int, reason: String)] = [
    (400, "errno_101"), (400, "errno_108"), (400, "errno_110"), (400, "errno_111"), (400, "errno_112"),
    (400, "errno_113"), (400, "errno_114"), (401, "errno_109"), (404, "errno_102"), (410, "errno_103"),
    (410, "errno_105"), (410, "errno_106"), (413, "errno_104"), (503, "errno_201"), (503, "errno_202"),
    (502, "errno_900"), (502, "errno_901"), (502, "errno_902"), (502, "errno_903"), (500, "errno_999"),
    (400, "BadTtl"), (400, "BadUrgency"), (400, "BadWebPushRequest"), (400, "BadWebPushTopic"),
    (400, "VapidPkHashMismatch"), (400, "IdleTimeout"), (403, "BadAuthorizationHeader"), (403, "BadJwtToken"),
    (403, "BadVapidPublicKey"), (403, "Forbidden"), (404, "BadPath"), (405, "MethodNotAllowed"), (410, "ExpiredToken"),
    (410, "Unregistered"), (413, "PayloadTooLarge"), (429, "TooManyRequests"), (500, "InternalServerError"),
    (503, "ServiceUnavailable"), (503, "Shutdown"), (406, "channelthrottled"), (406, "appthrottled"),
    (400, "HTTP400"), (401, "HTTP401"), (403, "HTTP403"), (404, "HTTP404"), (405, "HTTP405"), (406, "HTTP406"),
    (408, "HTTP408"), (410, "HTTP410"), (413, "HTTP413"), (425, "HTTP425"), (429, "HTTP429"), (500, "HTTP500"),
    (502, "HTTP502"), (503, "HTTP503"), (504, "HTTP504"), (301, "HTTP301"), (307, "HTTP307"),
  ]

  private static let statuses = Dictionary(uniqueKeysWithValues: all.map { ($0.reason, $0.status) })

  static func named(_ reason: String) -> WebPushError? {
    statuses[reason].map { WebPushError(status: $0, reason: reason) }
  }

  /// The answer as the service of the reason sends it.
  var answer: SimulatedAnswer {
    if let number = Int64(reason.hasPrefix("errno_") ? reason.dropFirst("errno_".count) : "") { return mozilla(number) }
    if reason.hasPrefix("HTTP") {
      return SimulatedAnswer(status: status, contentType: .html, body: Array("<HTML>\(detail)</HTML>".utf8))
    }
    if reason.hasSuffix("throttled") {
      var answer = SimulatedAnswer(status: status)
      answer.wnsStatus = Array(reason.utf8)
      return answer
    }
    var writer = JSONWriter(reservingCapacity: 64)
    writer.beginObject()
    writer.key("reason")
    writer.string(reason)
    writer.endObject()
    return SimulatedAnswer(status: status, contentType: .json, body: writer.bytes)
  }

  private func mozilla(_ number: Int64) -> SimulatedAnswer {
    var writer = JSONWriter(reservingCapacity: 128)
    writer.beginObject()
    writer.key("code")
    writer.integer(Int64(status))
    writer.key("errno")
    writer.integer(number)
    writer.key("error")
    writer.string("Error" as StaticString)
    writer.key("message")
    writer.string(detail)
    writer.endObject()
    return SimulatedAnswer(status: status, contentType: .json, body: writer.bytes)
  }
}

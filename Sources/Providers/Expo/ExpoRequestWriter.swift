// Writes the bodies of requests to Expo: rendered messages preceded by Expo's own fields, and lists of tickets for receipts.

internal import Runtime

/// Writes `POST /--/api/v2/push/send` and `POST /--/api/v2/push/getReceipts`.
enum ExpoRequestWriter {
  static let path = "/--/api/v2/push/send"
  static let receiptsPath = "/--/api/v2/push/getReceipts"

  /// A JSON array of messages in the order of the requests. The tickets of the answer have the same order.
  ///
  /// `ttl` and `expiration` are both written: Expo's defaults are 0 on iOS and four weeks on Android.
  static func body(_ requests: [PushRequest], now: Instant) -> [UInt8] {
    var json = JSONWriter(reservingCapacity: requests.reduce(2) { $0 + $1.body.count + $1.token.count + 128 })
    json.beginArray()
    for request in requests { write(request, now: now, to: &json) }
    json.endArray()
    return json.bytes
  }

  /// `{"ids": […]}`
  static func body(receiptsOf tickets: [String]) -> [UInt8] {
    var json = JSONWriter(reservingCapacity: 16 + tickets.count * 40)
    json.beginObject()
    json.key("ids")
    json.beginArray()
    for ticket in tickets { json.string(ticket) }
    json.endArray()
    json.endObject()
    return json.bytes
  }

  private static func write(_ request: PushRequest, now: Instant, to json: inout JSONWriter) {
    json.beginObject()
    json.key("to")
    json.string(request.token)
    json.key("priority")
    json.string((request.manner.priority == .high ? "high" : "normal") as StaticString)
    let secondsLeft = max(0, (request.deadline - now).count / 1_000_000_000)
    let timeToLive = request.manner.timeToLive(secondsLeft: secondsLeft)
    json.key("expiration")
    json.integer(request.expiresAtMilliseconds / 1000 - (secondsLeft - timeToLive))
    json.key("ttl")
    json.integer(timeToLive)
    if let collapseID = request.collapseID {
      json.key("collapseId")
      json.string(collapseID)
    }
    // The members of the rendered object, without its braces, continue this object.
    json.raw(request.body.dropFirst().dropLast())
    json.endObject()
  }
}

// Writes a request to FCM: firebase.google.com/docs/reference/fcm/rest/v1/projects.messages.

internal import Runtime

/// Writes requests for one project at one endpoint.
struct FCMRequestWriter {
  /// Maximum time to live that FCM accepts, in seconds: four weeks.
  static let timeToLiveMax: Int64 = 2_419_200

  /// All fields except `authorization`, which changes with each new access token.
  private let shared: HTTP2SharedFields

  init(authority: String, projectID: String) {
    shared = [
      ":method": "POST", ":scheme": "https", ":path": "/v1/projects/\(projectID)/messages:send",
      ":authority": authority,
      "content-type": "application/json",
    ]
  }

  /// Writes the head.
  ///
  /// - Parameter bearer: "Bearer " and the access token.
  func write(bearer: [UInt8], into head: inout HTTP2RequestHead) {
    head.begin(with: shared)
    head.add(.authorization, bearer)
  }

  /// Writes the body. It is a data message, so that an Android app itself decides what the phone shows. For iPhones it contains
  /// what iOS shows. The time to live is at most the time left until the deadline. FCM's default would be four weeks.
  static func body(_ request: PushRequest, now: Instant) -> [UInt8] {
    var json = JSONWriter(reservingCapacity: request.body.count + request.fcm.count + request.token.count + 192)
    json.beginObject()
    json.key("message")
    json.beginObject()
    json.key("token")
    json.string(request.token)
    json.key("data")
    json.raw(request.body)
    if !request.fcm.notification.isEmpty {
      json.key("notification")
      json.raw(request.fcm.notification)
    }
    if !request.fcm.apns.isEmpty {
      json.key("apns")
      json.raw(request.fcm.apns)
    }
    json.key("android")
    json.beginObject()
    json.key("priority")
    json.string((request.manner.priority == .high ? "HIGH" : "NORMAL") as StaticString)
    json.key("ttl")
    let secondsLeft = (request.deadline - now).count / 1_000_000_000
    writeTimeToLive(request.manner.timeToLive(secondsLeft: secondsLeft), to: &json)
    if let collapseID = request.collapseID {
      json.key("collapse_key")
      json.string(collapseID)
    }
    json.key("direct_boot_ok")
    json.boolean(true)
    // The members of the rendered object, without its braces, continue this object.
    if request.fcm.android.count > 2 { json.raw(request.fcm.android.dropFirst().dropLast()) }
    json.endObject()
    json.endObject()
    json.endObject()
    return json.bytes
  }

  /// Writes whole seconds with an `s`, the JSON form of a protobuf Duration.
  private static func writeTimeToLive(_ seconds: Int64, to json: inout JSONWriter) {
    json.bytes.append(UInt8(ascii: "\""))
    json.appendDecimal(min(max(0, seconds), timeToLiveMax))
    json.bytes.append(UInt8(ascii: "s"))
    json.bytes.append(UInt8(ascii: "\""))
  }
}

// A request to FCM: firebase.google.com/docs/reference/fcm/rest/v1/projects.messages.

internal import Runtime

/// Writes requests for one project at one endpoint.
struct FCMRequestWriter {
  /// Four weeks, the longest FCM takes, seconds.
  static let timeToLiveMax: Int64 = 2_419_200

  /// All but the token of the account, which is renewed.
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

  /// The body: data, so that an Android app itself decides what the phone shows, and for iPhones what iOS shows; never
  /// older than what is left of the deadline, where FCM's own default is four weeks.
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
    // The rendered object without its brackets continues this one.
    if request.fcm.android.count > 2 { json.raw(request.fcm.android.dropFirst().dropLast()) }
    json.endObject()
    json.endObject()
    json.endObject()
    return json.bytes
  }

  /// Whole seconds with an `s`, as JSON writes a protobuf Duration.
  private static func writeTimeToLive(_ seconds: Int64, to json: inout JSONWriter) {
    json.bytes.append(UInt8(ascii: "\""))
    json.appendDecimal(min(max(0, seconds), timeToLiveMax))
    json.bytes.append(UInt8(ascii: "s"))
    json.bytes.append(UInt8(ascii: "\""))
  }
}

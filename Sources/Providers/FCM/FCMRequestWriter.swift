// A request to FCM: firebase.google.com/docs/reference/fcm/rest/v1/projects.messages.

internal import Runtime

/// Writes requests for one project at one endpoint.
struct FCMRequestWriter {
  /// Four weeks, the longest FCM takes, seconds.
  static let timeToLiveMax: Int64 = 2_419_200

  private let authority: String
  private let path: String

  init(authority: String, projectID: String) {
    self.authority = authority
    path = "/v1/projects/\(projectID)/messages:send"
  }

  /// Writes the head into an empty block.
  ///
  /// - Parameter bearer: "Bearer " and the access token.
  func write(bearer: [UInt8], into headers: inout HTTP2HeaderBlock) {
    headers.add(":method", "POST")
    headers.add(":scheme", "https")
    headers.add(":path", path)
    headers.add(":authority", authority)
    headers.add("authorization", bearer, isIndexed: false)
    headers.add("content-type", "application/json")
  }

  /// The body: data only, so that the app itself decides what the phone shows; and never older than what is left of the
  /// deadline, where FCM's own default is four weeks.
  static func body(_ request: borrowing PushRequest, now: Instant) -> [UInt8] {
    var json = JSONWriter(reservingCapacity: request.body.count + request.token.count + 192)
    json.beginObject()
    json.key("message")
    json.beginObject()
    json.key("token")
    json.string(request.token)
    json.key("data")
    json.raw(request.body)
    json.key("android")
    json.beginObject()
    json.key("priority")
    json.string("HIGH" as StaticString)
    json.key("ttl")
    writeTimeToLive((request.deadline - now).count / 1_000_000_000, to: &json)
    if let collapseID = request.collapseID {
      json.key("collapse_key")
      json.string(collapseID)
    }
    json.key("direct_boot_ok")
    json.boolean(true)
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

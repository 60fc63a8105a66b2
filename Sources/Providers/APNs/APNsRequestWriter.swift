// The head of an APNs request: Apple, "Sending notification requests to APNs".

internal import Runtime

/// Writes requests for one topic at one endpoint.
struct APNsRequestWriter {
  /// Why a request is not sent at all; Apple would refuse it, or a rule for calls forbids it.
  enum Objection: String {
    /// A token is hexadecimal.
    case malformedDeviceToken = "MalformedDeviceToken"
    /// 5120 bytes for VoIP, 4096 otherwise.
    case payloadTooLarge = "PayloadTooLarge"
    /// Every VoIP push must end in a reported call, so none may be sent to take one back (Apple, "Responding to VoIP
    /// Notifications from PushKit").
    case cancelNotAllowed = "CancelNotAllowed"
  }

  static let voipPayloadBytesMax = 5120
  static let alertPayloadBytesMax = 4096
  static let collapseIDBytesMax = 64
  /// Longer than any token Apple ever issued, short enough for a header.
  static let tokenBytesMax = 200

  /// The fields whose values differ from push to push, by their place in a head.
  private enum Place {
    static let path = 2
    static let authorization = 4
    static let expiration = 8
    static let id = 9
  }

  /// Heads with everything in them that all pushes of a kind have in common.
  private let voip: HTTP2HeaderBlock
  private let alert: HTTP2HeaderBlock

  /// - Parameter topic: the bundle id, without `.voip`.
  init(authority: String, topic: String) {
    voip = Self.head(authority, topic: topic + ".voip", pushType: "voip")
    alert = Self.head(authority, topic: topic, pushType: "alert")
  }

  /// Values that come once only are kept out of the HPACK table, where they would push out those that come with every
  /// request.
  private static func head(_ authority: String, topic: String, pushType: String) -> HTTP2HeaderBlock {
    var head = HTTP2HeaderBlock()
    head.add(":method", "POST")
    head.add(":scheme", "https")
    head.add(":path", "", isIndexed: false)
    head.add(":authority", authority)
    head.add("authorization", "", isIndexed: false)
    head.add("apns-topic", topic)
    head.add("apns-push-type", pushType)
    head.add("apns-priority", "10")
    // 0: try once, never store. A stored call would ring hours late.
    head.add("apns-expiration", "0", isIndexed: false)
    head.add("apns-id", "", isIndexed: false)
    return head
  }

  /// What speaks against sending the request; nil for nothing.
  static func objection(to request: borrowing PushRequest) -> Objection? {
    if request.kind == .cancel { return .cancelNotAllowed }
    guard (1...tokenBytesMax).contains(request.token.count), request.token.allSatisfy(isHexadecimal) else {
      return .malformedDeviceToken
    }
    let bytesMax = request.kind == .invite ? voipPayloadBytesMax : alertPayloadBytesMax
    return request.body.count > bytesMax ? .payloadTooLarge : nil
  }

  /// Writes the head into a block.
  ///
  /// - Parameter bearer: "bearer " and the JWT.
  func write(_ request: borrowing PushRequest, bearer: [UInt8], into headers: inout HTTP2HeaderBlock) {
    let isVoIP = request.kind == .invite
    headers.fill(from: isVoIP ? voip : alert)
    headers.replace(Place.path) { [token = request.token] value in
      value.append(contentsOf: Self.pathPrefix)
      value.append(contentsOf: token)
    }
    headers.replace(Place.authorization, bearer)
    headers.replace(Place.id) { [id = request.deliveryID] value in id.appendUUID(to: &value) }
    if isVoIP { return }
    headers.replace(Place.expiration) { [seconds = request.expiresAtMilliseconds / 1000] value in
      value.append(contentsOf: String(seconds).utf8)
    }
    if let collapseID = request.collapseID, !collapseID.isEmpty {
      headers.add("apns-collapse-id", collapseID.prefix(Self.collapseIDBytesMax), isIndexed: false)
    }
  }

  private static let pathPrefix = Array("/3/device/".utf8)

  private static func isHexadecimal(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
      UInt8(ascii: "A")...UInt8(ascii: "F"):
      true
    default: false
    }
  }
}

extension DeliveryID {
  /// Appends the UUID text, lower-case, 36 bytes.
  func appendUUID(to bytes: inout [UInt8]) {
    unsafe withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 36) { text in
      var place = 0
      for nibble in 0..<32 {
        if nibble == 8 || nibble == 12 || nibble == 16 || nibble == 20 {
          unsafe text[place] = UInt8(ascii: "-")
          place += 1
        }
        let half = nibble < 16 ? high : low
        let value = UInt8(truncatingIfNeeded: half >> UInt64(60 - 4 * (nibble & 15))) & 15
        unsafe text[place] = value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
        place += 1
      }
      unsafe bytes.append(contentsOf: text)
    }
  }
}

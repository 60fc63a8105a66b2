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

  private let authority: String
  private let topic: String
  private let voipTopic: String

  /// - Parameter topic: the bundle id, without `.voip`.
  init(authority: String, topic: String) {
    self.authority = authority
    self.topic = topic
    voipTopic = topic + ".voip"
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

  /// Writes the head into an empty block. Values that come once only are kept out of the HPACK table, where they would
  /// push out those that come with every request.
  ///
  /// - Parameter bearer: "bearer " and the JWT.
  func write(_ request: borrowing PushRequest, bearer: [UInt8], into headers: inout HTTP2HeaderBlock) {
    let isVoIP = request.kind == .invite
    headers.add(":method", "POST")
    headers.add(":scheme", "https")
    headers.add(":path", isIndexed: false) { [token = request.token] value in
      value.append(contentsOf: "/3/device/".utf8)
      value.append(contentsOf: token)
    }
    headers.add(":authority", authority)
    headers.add("authorization", bearer, isIndexed: false)
    headers.add("apns-topic", isVoIP ? voipTopic : topic)
    headers.add("apns-push-type", isVoIP ? "voip" : "alert")
    headers.add("apns-priority", "10")
    // 0: try once, never store. A stored call would ring hours late.
    headers.add("apns-expiration", isVoIP ? 0 : request.expiresAtMilliseconds / 1000, isIndexed: false)
    headers.add("apns-id", isIndexed: false) { [id = request.deliveryID] value in id.appendUUID(to: &value) }
    if !isVoIP, let collapseID = request.collapseID, !collapseID.isEmpty {
      headers.add("apns-collapse-id", collapseID.prefix(Self.collapseIDBytesMax), isIndexed: false)
    }
  }

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
    for nibble in 0..<32 {
      if nibble == 8 || nibble == 12 || nibble == 16 || nibble == 20 { bytes.append(UInt8(ascii: "-")) }
      let half = nibble < 16 ? high : low
      let value = UInt8(truncatingIfNeeded: half >> UInt64(60 - 4 * (nibble & 15))) & 15
      bytes.append(value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10)
    }
  }
}

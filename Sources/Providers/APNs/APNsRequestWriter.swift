// The head of an APNs request: Apple, "Sending notification requests to APNs".

internal import PushModel
internal import Runtime

/// Writes requests for one topic at one endpoint.
final class APNsRequestWriter: Sendable {
  /// Why a request cannot be sent at all: Apple would refuse it, or a rule for calls forbids it.
  enum Objection: String {
    /// The token is not hexadecimal, empty or too long.
    case malformedDeviceToken = "MalformedDeviceToken"
    /// The limit is 5120 bytes for VoIP and 4096 bytes otherwise.
    case payloadTooLarge = "PayloadTooLarge"
    /// Every VoIP push must lead to a reported call (Apple, "Responding to VoIP Notifications from PushKit"). A cancel is therefore
    /// sent as VoIP only if its template says that the app handles it.
    case cancelNotAllowed = "CancelNotAllowed"
  }

  static let voipPayloadBytesMax = 5120
  static let alertPayloadBytesMax = 4096
  static let collapseIDBytesMax = 64
  /// Longer than any token that Apple has issued, and short enough for a header.
  static let tokenBytesMax = 200

  /// The fields that all VoIP pushes share.
  private let voip: HTTP2SharedFields
  /// The shared fields of all other pushes, by push type and priority.
  private let others: [HTTP2SharedFields]
  private let expiration = HTTP2FieldName("apns-expiration")
  private let id = HTTP2FieldName("apns-id")
  private let collapseID = HTTP2FieldName("apns-collapse-id")

  /// - Parameter topic: the bundle id, without `.voip`.
  init(authority: String, topic: String) {
    voip = [
      ":method": "POST", ":scheme": "https", ":authority": authority, "apns-topic": topic + ".voip",
      "apns-push-type": "voip", "apns-priority": "10",
      // Try once, never store: a stored call would ring hours late.
      "apns-expiration": "0",
    ]
    others = ["alert", "background"].flatMap { type in
      ["10", "5", "1"].map { priority in
        [
          ":method": "POST", ":scheme": "https", ":authority": authority, "apns-topic": topic, "apns-push-type": type,
          "apns-priority": priority,
        ]
      }
    }
  }

  /// Why the request cannot be sent; nil if it can.
  static func objection(to request: PushRequest) -> Objection? {
    if request.kind == .cancel, request.manner.apnsType != .voip { return .cancelNotAllowed }
    guard (1...tokenBytesMax).contains(request.token.count), request.token.allSatisfy(isHexadecimal) else {
      return .malformedDeviceToken
    }
    let bytesMax = request.kind == .invite ? voipPayloadBytesMax : alertPayloadBytesMax
    return request.body.count > bytesMax ? .payloadTooLarge : nil
  }

  /// Writes the head.
  ///
  /// - Parameter bearer: "bearer " and the JWT.
  func write(_ request: PushRequest, bearer: [UInt8], into head: inout HTTP2RequestHead) {
    let isVoIP = request.kind == .invite || request.kind == .cancel
    head.begin(with: isVoIP ? voip : shared(for: request.manner))
    head.add(.path, count: Self.pathPrefix.count + request.token.count) { value in
      value.append(copying: Self.pathPrefix)
      value.append(copying: request.token)
    }
    head.add(.authorization, bearer)
    head.add(id, count: DeliveryID.uuidByteCount) { request.deliveryID.appendUUID(to: &$0) }
    if isVoIP { return }
    head.add(expiration, request.manner.isStored ? String(request.expiresAtMilliseconds / 1000) : "0")
    if let collapseID = request.collapseID, !collapseID.isEmpty {
      head.add(self.collapseID, collapseID.prefix(Self.collapseIDBytesMax))
    }
  }

  private func shared(for manner: PushManner) -> HTTP2SharedFields {
    others[(manner.apnsType == .background ? 3 : 0) + Int(manner.priority.rawValue)]
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
  static let uuidByteCount = 36

  /// Appends the UUID text, lower-case.
  func appendUUID(to bytes: inout [UInt8]) {
    unsafe withUnsafeTemporaryAllocation(of: UInt8.self, capacity: Self.uuidByteCount) { text in
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

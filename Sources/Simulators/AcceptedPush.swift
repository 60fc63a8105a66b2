// A push that a simulator accepted: tests read it, and the log has one line for each.

internal import Runtime

/// A push as the provider saw it.
public struct AcceptedPush: Sendable {
  public var provider: SimulatedProvider
  /// When it was accepted, in microseconds since 1970.
  public var at: Int64
  /// The number of the connection on this listener, counted from 1, and the stream's id there.
  public internal(set) var connection = 0
  public internal(set) var stream: Int32 = 0
  /// `production` or `sandbox` for APNs, else empty.
  public var environment: String
  var tokenBytes: ArraySlice<UInt8>
  var idBytes: ArraySlice<UInt8>
  var kindBytes: ArraySlice<UInt8>
  var topicBytes: ArraySlice<UInt8>
  /// The relevant headers or envelope fields, in order: name and value.
  var details: [(name: StaticString, value: ArraySlice<UInt8>)]
  var payloadBytes: ArraySlice<UInt8>
  /// Everything that reaches the device, if that is more than the payload; else empty.
  var messageBytes: ArraySlice<UInt8> = []
  /// A rule of the calls' protocol that the push broke although the provider accepts it, or nil.
  public var violation: ProtocolViolation?

  /// The device token as it was sent; web push: the name in the endpoint.
  public var token: String { tokenBytes.text }
  /// APNs: the apns-id; FCM: the message name; Expo: the ticket's id; web push: the last part of `location`.
  public var id: String { idBytes.text }
  /// APNs: the push type; FCM and Expo: the priority; web push: the urgency.
  public var kind: String { kindBytes.text }
  /// APNs: the topic; FCM: the project; Expo: the name of the project, taken from the token; web push: the origin.
  public var topic: String { topicBytes.text }
  /// The payload's JSON text: APNs: the body; FCM: the `data` object; Expo: the message object;
  /// web push: the decrypted content.
  public var payload: [UInt8] { Array(payloadBytes) }
  /// Everything the device may get, as JSON text: FCM: the `message` object; elsewhere the payload.
  public var message: [UInt8] { messageBytes.isEmpty ? payload : Array(messageBytes) }
  /// A header or envelope field by the name it has in the log.
  public func detail(_ name: String) -> String? {
    details.first { "\($0.name)" == name }?.value.text
  }

  /// Appends the push as one JSON line.
  func appendLine(to output: inout [UInt8]) {
    var writer = JSONWriter(reservingCapacity: 0)
    swap(&writer.bytes, &output)
    LogTime.beginLine(at: at, in: &writer)
    writer.key("outcome")
    writer.string("accepted")
    writer.key("provider")
    writer.string(provider.rawValue)
    if !environment.isEmpty {
      writer.key("environment")
      writer.string(environment)
    }
    writer.key("token")
    writer.string(tokenBytes)
    writer.key("id")
    writer.string(idBytes)
    writer.key("kind")
    writer.string(kindBytes)
    writer.key("topic")
    writer.string(topicBytes)
    writer.key("headers")
    writer.beginObject()
    for detail in details {
      writer.key(detail.name)
      writer.string(detail.value)
    }
    writer.endObject()
    if let violation {
      writer.key("violation")
      writer.string(violation.rawValue)
    }
    writer.key("payload")
    let payloadStart = writer.bytes.count
    writer.raw(payloadBytes)
    // A line break in JSON text is always white space, so a blank can replace it. The log entry stays on one line.
    for index in payloadStart..<writer.bytes.count where writer.bytes[index] == 0x0A || writer.bytes[index] == 0x0D {
      writer.bytes[index] = 0x20
    }
    writer.endObject()
    writer.bytes.append(0x0A)
    swap(&writer.bytes, &output)
  }
}

/// Violations: a provider accepts them, but a gateway must never send them.
public enum ProtocolViolation: String, Sendable {
  /// A cancel or a missed call on a VoIP token: every VoIP push must end in a reported call (Apple, PushKit).
  case voipPushIsNoInvite = "voip_push_is_no_invite"
  /// A web push whose salt or key was used for another one (RFC 8291 §3.1).
  case encryptionIsRepeated = "encryption_is_repeated"
}

/// The time stamp of the log: milliseconds since 1970 with the microseconds as a fraction.
enum LogTime {
  /// Opens a line's object and writes its first member, `at`.
  static func beginLine(at microseconds: Int64, in writer: inout JSONWriter) {
    writer.bytes.append(UInt8(ascii: "{"))
    writer.key("at")
    writer.appendDecimal(microseconds / 1_000)
    writer.bytes.append(UInt8(ascii: "."))
    let fraction = UInt8(truncatingIfNeeded: microseconds % 1_000 / 10)
    writer.bytes.append(UInt8(ascii: "0") + fraction / 10)
    writer.bytes.append(UInt8(ascii: "0") + fraction % 10)
    writer.bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: microseconds % 10))
  }
}

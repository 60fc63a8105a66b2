// The events of both clients of the differential target, in a common form that can be compared.

struct ClientAnswer: Equatable {
  /// Names and values, alternating.
  var fields: [[UInt8]] = []
  var body: [UInt8] = []
  var isTruncated = false
}

enum ClientEvent: Equatable, CustomStringConvertible {
  case ended(tag: Int, code: UInt32, answer: ClientAnswer?)
  case settings
  case goAway(lastStream: Int32, code: UInt32, debugData: [UInt8])
  case pong(UInt64)

  var description: String {
    switch self {
    case .settings: "settings"
    case .pong(let number): "pong \(number)"
    case .goAway(let last, let code, let data): "goaway \(last) \(code) \(data)"
    case .ended(let tag, let code, nil): "\(tag) ended \(code)"
    case .ended(let tag, let code, let answer?):
      "\(tag) ended \(code) \(answer.fields.map { String(decoding: $0, as: UTF8.self) }) "
        + "\(answer.body.count) bytes\(answer.isTruncated ? ", cut" : "")"
    }
  }
}

/// A frame that a peer wrote.
struct WireFrame: CustomStringConvertible {
  let bytes: [UInt8]

  var type: UInt8 { bytes[3] }
  var flags: UInt8 { bytes[4] }
  var stream: UInt32 { Self.number(bytes[5..<9]) & 0x7FFF_FFFF }
  var payload: ArraySlice<UInt8> { bytes[9...] }
  var description: String {
    "type \(type) flags \(flags) stream \(stream) of \(payload.count) bytes \(payload.prefix(64))"
  }

  static func number(_ bytes: ArraySlice<UInt8>) -> UInt32 { bytes.reduce(0) { $0 << 8 | UInt32($1) } }
}

// Which path and method is what. A table of our own rather than a router's, so that a known path says which methods it
// has, and an unknown one is refused as everything else is.

internal import HTTPTypes

/// What the API can do.
enum APIOperation: String, CaseIterable, Sendable {
  case enqueueCall, answerCall, declineCall, endCall, reportRinging, readCall, registerDevice, dropDevice

  /// What a key needs for it.
  var scope: APIScope {
    switch self {
    case .enqueueCall, .answerCall, .declineCall, .endCall: .enqueue
    case .registerDevice, .dropDevice, .reportRinging: .device
    case .readCall: .read
    }
  }
}

/// What there is at a path.
struct APIRoute: Equatable {
  /// The call that the path names.
  var callID = ""
  private(set) var operations: [HTTPRequest.Method: APIOperation]

  /// - Parameter path: without its query. Nil: there is nothing at this path.
  init?(path: String) {
    let parts = path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
    guard path.hasPrefix("/"), parts.first == "v1" else { return nil }
    switch (parts.dropFirst().first, parts.count) {
    case ("calls", 2): operations = [.post: .enqueueCall]
    case ("devices", 2): operations = [.put: .registerDevice, .delete: .dropDevice]
    case ("calls", 3): operations = [.get: .readCall]
    case ("calls", 4):
      switch parts.last {
      case "answer": operations = [.post: .answerCall]
      case "decline": operations = [.post: .declineCall]
      case "end": operations = [.post: .endCall]
      case "ringing": operations = [.post: .reportRinging]
      default: return nil
      }
    default: return nil
    }
    guard parts.count > 2 else { return }
    guard let callID = Self.decode(parts[parts.startIndex + 2]), 1...128 ~= callID.unicodeScalars.count,
      !callID.unicodeScalars.contains("\0")
    else { return nil }
    self.callID = callID
  }

  /// The methods for `Allow`.
  var methods: [HTTPRequest.Method] { operations.keys.sorted { $0.rawValue < $1.rawValue } }

  /// Where a call is found.
  static func path(ofCall callID: String) -> String {
    let plain = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~".utf8)
    return callID.utf8.reduce(into: "/v1/calls/") { path, byte in
      if plain.contains(byte) {
        path.unicodeScalars.append(Unicode.Scalar(byte))
      } else {
        path += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
      }
    }
  }

  /// Resolves `%XX`; nil if that is malformed, or gives no UTF-8.
  private static func decode(_ part: Substring) -> String? {
    var bytes: [UInt8] = []
    var rest = part.utf8
    while let byte = rest.popFirst() {
      guard byte == UInt8(ascii: "%") else {
        bytes.append(byte)
        continue
      }
      let digits = rest.prefix(2)
      guard digits.count == 2, digits.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit }),
        let decoded = UInt8(String(Substring(digits)), radix: 16)
      else { return nil }
      bytes.append(decoded)
      rest = rest.dropFirst(2)
    }
    return String(validating: bytes, as: UTF8.self)
  }
}

// Maps paths and methods to operations. This is a table and no router, so that the answer to a wrong method can list
// the methods of the path, and an unknown path gets the same kind of answer as every other error.

internal import HTTPTypes

/// The operations of the API.
enum APIOperation: String, CaseIterable, Sendable {
  case enqueueCall, addRecipients, answerCall, declineCall, endCall, reportRinging, readCall, registerDevice, dropDevice
  /// The paths of other push servers.
  case notifyMatrix, pushGorush

  /// Whether it is on a path of another push server.
  var isOfOtherServer: Bool { self == .notifyMatrix || self == .pushGorush }

  /// The scope that a key needs for it.
  var scope: APIScope {
    switch self {
    case .enqueueCall, .addRecipients, .answerCall, .declineCall, .endCall, .notifyMatrix, .pushGorush: .enqueue
    case .registerDevice, .dropDevice, .reportRinging: .device
    case .readCall: .read
    }
  }
}

/// The operations of a path.
struct APIRoute: Equatable {
  /// The id of the call in the path; empty if the path has none.
  var callID = ""
  private(set) var operations: [HTTPRequest.Method: APIOperation]

  /// The paths of other push servers, on which only POST is allowed.
  static let ofOtherServers: [String: APIOperation] = [
    "/_matrix/push/v1/notify": .notifyMatrix, "/api/push": .pushGorush,
  ]

  /// - Parameter path: the path without the query. The initializer returns nil if no operation has this path.
  init?(path: String) {
    if let operation = Self.ofOtherServers[path] {
      operations = [.post: operation]
      return
    }
    let parts = path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
    guard path.hasPrefix("/"), parts.first == "v1" else { return nil }
    switch (parts.dropFirst().first, parts.count) {
    case ("calls", 2): operations = [.post: .enqueueCall]
    case ("devices", 2): operations = [.put: .registerDevice, .delete: .dropDevice]
    case ("calls", 3): operations = [.get: .readCall]
    case ("calls", 4):
      switch parts.last {
      case "recipients": operations = [.post: .addRecipients]
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

  /// The methods for the header `Allow`.
  var methods: [HTTPRequest.Method] { operations.keys.sorted { $0.rawValue < $1.rawValue } }

  /// The path of a call.
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

  /// Decodes `%XX`. Returns nil if an escape is malformed, or the result is not UTF-8.
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

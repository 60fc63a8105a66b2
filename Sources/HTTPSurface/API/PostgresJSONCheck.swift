// Finds values in valid JSON that Postgres cannot store, or that would become too large there.

internal import Runtime

/// Looks for NUL and unpaired surrogates, which Postgres cannot store in text, and for very long numbers, which `jsonb`
/// stores with all digits: `1e100000` has eight bytes on the wire and a hundred thousand in the database.
struct PostgresJSONCheck {
  /// Maximum number of digits of a number, and maximum exponent. A `double` can represent less.
  private static let digitsMax = 64
  private static let exponentMax: Int64 = 330

  private let json: JSONScanner

  init(_ json: JSONScanner) {
    self.json = json
  }

  /// - Throws: 422 with the path of the value.
  func check() throws(APIProblem) {
    try check(json.root, at: "")
  }

  private func check(_ value: JSONScanner.Value, at path: String) throws(APIProblem) {
    switch value.kind {
    case .object:
      for member in json.members(of: value) {
        let here = Self.path(path, member: json.key(member))
        if let fault = Self.fault(inString: json.bytes[member.key]) { throw .invalid(here, "a name \(fault)") }
        try check(member.value, at: here)
      }
    case .array:
      var index = 0
      for element in json.elements(of: value) {
        try check(element, at: "\(path)[\(index)]")
        index += 1
      }
    case .string:
      if let fault = Self.fault(inString: json.bytes[value.contents]) { throw .invalid(path, fault) }
    case .number:
      if !Self.isReasonable(json.raw(value)) {
        throw .invalid(
          path, "a number may have at most \(Self.digitsMax) digits, and an exponent of at most \(Self.exponentMax)")
      }
    case .boolean, .null: break
    }
  }

  /// Appends a member's name if it is one that the API defines. Any other name could contain anything, and errors must
  /// not repeat it.
  private static func path(_ path: String, member: [UInt8]) -> String {
    let name = String(decoding: member, as: UTF8.self)
    guard members.contains(name) else { return path.isEmpty ? "body" : path }
    return path.isEmpty ? name : "\(path).\(name)"
  }

  private static let members: Set<String> = [
    "payload", "recipients", "ringSeconds", "kind", "userId", "reason", "provider", "token", "environment", "platform",
    "locale", "voip", "callId", "messageId", "chatId", "from", "fromName", "apartmentNumber", "buildingName",
    "channelName", "metadata", "pushToken", "voipPushToken", "fcmToken", "apnsToken", "notificationEnabled",
  ]

  // MARK: - Strings

  /// What is wrong with the bytes between a string's quotes; nil if nothing is.
  static func fault(inString contents: ArraySlice<UInt8>) -> String? {
    var position = contents.startIndex
    while position < contents.endIndex {
      guard contents[position] == UInt8(ascii: "\\") else {
        position += 1
        continue
      }
      guard let unit = codeUnit(contents, at: position) else {
        position += 2
        continue
      }
      switch unit {
      case 0: return "must not hold the character U+0000"
      case 0xD800...0xDBFF:
        guard let low = codeUnit(contents, at: position + 6), 0xDC00...0xDFFF ~= low else { return halfPair }
        position += 12
      case 0xDC00...0xDFFF: return halfPair
      default: position += 6
      }
    }
    return nil
  }

  private static let halfPair = "must not hold half of a surrogate pair"

  /// The code unit of the escape `\uXXXX` at a position; nil if there is none.
  private static func codeUnit(_ contents: ArraySlice<UInt8>, at position: Int) -> UInt16? {
    guard position + 6 <= contents.endIndex, contents[position] == UInt8(ascii: "\\"),
      contents[position + 1] == UInt8(ascii: "u")
    else { return nil }
    return UInt16(String(decoding: contents[position + 2..<position + 6], as: UTF8.self), radix: 16)
  }

  // MARK: - Numbers

  static func isReasonable(_ number: ArraySlice<UInt8>) -> Bool {
    let parts = number.split(maxSplits: 1) { $0 == UInt8(ascii: "e") || $0 == UInt8(ascii: "E") }
    guard let digits = parts.first, digits.count <= digitsMax else { return false }
    guard parts.count == 2 else { return true }
    guard let exponent = Int64(String(decoding: parts[1], as: UTF8.self)) else { return false }
    return -exponentMax...exponentMax ~= exponent
  }
}

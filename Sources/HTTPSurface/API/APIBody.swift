// The body of a request: a JSON object whose values Postgres can store.

internal import Runtime

/// Typed access to the members of a request's body. Errors name the member.
struct APIBody {
  private let json: JSONScanner

  /// - Parameters:
  ///   - bytes: the body; if empty, it is treated as `{}`.
  ///   - members: the allowed names. Any other name is refused, because a misspelt one would be ignored silently.
  init(_ bytes: [UInt8], members: [StaticString]) throws(APIProblem) {
    do {
      json = try JSONScanner(bytes.isEmpty ? Array("{}".utf8) : bytes)
    } catch {
      throw .notJSON(error)
    }
    guard json.root.kind == .object else { throw .invalid("body", "must be a JSON object") }
    for member in json.members(of: json.root) where !members.contains(where: { json.isKey(member, $0) }) {
      throw .invalid("body", Self.unknown(json.key(member), members.map { "\($0)" }))
    }
    try PostgresJSONCheck(json).check()
  }

  private static let ofPayload = ["callId", "messageId", "chatId", "from", "fromName", "channelName", "metadata"]

  /// What is wrong with a member that is not known. A name that may be a token is not repeated.
  private static func unknown(_ key: [UInt8], _ known: [String]) -> String {
    let name = String(decoding: key, as: UTF8.self)
    guard key.count <= 32, name.wholeMatch(of: /[A-Za-z_]+/) != nil else {
      return "has a member of another name than \(known.joined(separator: ", "))"
    }
    if known.contains("payload"), ofPayload.contains(name) {
      return "has the member \(name), which belongs into payload"
    }
    if name == "app" { return "has the member app, which the key determines; leave it out" }
    let near = Suggestion.text(for: name, among: known)
    return "has the member \(name), which is not known"
      + (near.isEmpty ? "; the members are \(known.joined(separator: ", "))" : near)
  }

  /// A member as JSON text.
  func json(_ name: StaticString, _ kind: JSONScanner.Kind, _ otherwise: String) throws(APIProblem) -> [UInt8] {
    guard let value = value(name), value.kind == kind else { throw .invalid("\(name)", otherwise) }
    return Array(json.raw(value))
  }

  /// A string of at least 1 and at most `max` characters (Unicode scalars, as Postgres counts).
  func text(_ name: StaticString, max: Int) throws(APIProblem) -> String {
    guard let text = try optionalText(name, max: max) else {
      throw .invalid("\(name)", "must be a string of 1 to \(max) characters")
    }
    return text
  }

  /// Like `text`, but returns nil if the member is missing or null.
  func optionalText(_ name: StaticString, max: Int) throws(APIProblem) -> String? {
    guard let value = value(name) else { return nil }
    guard let text = json.text(value), 1...max ~= text.unicodeScalars.count else {
      throw .invalid("\(name)", "must be a string of 1 to \(max) characters, or left out")
    }
    return text
  }

  /// A string, or an object as its JSON text; nil if the member is missing or null.
  func optionalTextOrObject(_ name: StaticString, max: Int) throws(APIProblem) -> String? {
    guard let value = value(name), value.kind == .object else { return try optionalText(name, max: max) }
    let raw = json.raw(value)
    guard raw.count <= max else { throw .invalid("\(name)", "must have at most \(max) bytes") }
    return String(decoding: raw, as: UTF8.self)
  }

  func optionalInteger(_ name: StaticString, in range: ClosedRange<Int32>) throws(APIProblem) -> Int32? {
    guard let value = value(name) else { return nil }
    // In JSON Schema, 60.0 and 6e1 are integers.
    let number = value.kind == .number ? Double(String(decoding: json.raw(value), as: UTF8.self)) : nil
    guard let number = number.flatMap(Int32.init(exactly:)), range.contains(number) else {
      throw .invalid(
        "\(name)", "must be a whole number from \(range.lowerBound) to \(range.upperBound), or left out")
    }
    return number
  }

  func optionalBoolean(_ name: StaticString) throws(APIProblem) -> Bool? {
    guard let value = value(name) else { return nil }
    guard let boolean = json.boolean(value) else { throw .invalid("\(name)", "must be true or false, or left out") }
    return boolean
  }

  /// Whether an object in the body has one of these members with a value other than null.
  func has(_ names: [StaticString], in object: StaticString) -> Bool {
    guard let value = value(object) else { return false }
    return names.contains { name in json.member(name, of: value).map { $0.kind != .null } ?? false }
  }

  /// Number of elements of an array in the body.
  func count(_ array: StaticString) -> Int {
    value(array).map { value in json.elements(of: value).reduce(0) { count, _ in count + 1 } } ?? 0
  }

  private func value(_ name: StaticString) -> JSONScanner.Value? {
    json.member(name).flatMap { $0.kind == .null ? nil : $0 }
  }
}

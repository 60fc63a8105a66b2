// JSON as an app on a phone sees it after its system has parsed it.

internal import Runtime

/// A JSON value.
public indirect enum PhoneJSON: Equatable, Sendable {
  case object([String: PhoneJSON])
  case array([PhoneJSON])
  case text(String)
  case number(Double)
  case boolean(Bool)
  case null

  /// Parses a text; nil if it is not JSON.
  public init?(_ text: some Sequence<UInt8>) {
    guard let json = try? JSONScanner(Array(text)) else { return nil }
    self.init(json.root, of: json)
  }

  private init(_ value: JSONScanner.Value, of json: JSONScanner) {
    switch value.kind {
    case .object:
      var members: [String: PhoneJSON] = [:]
      for member in json.members(of: value) {
        members[String(decoding: json.key(member), as: UTF8.self)] = PhoneJSON(member.value, of: json)
      }
      self = .object(members)
    case .array: self = .array(json.elements(of: value).map { PhoneJSON($0, of: json) })
    case .string: self = .text(json.text(value) ?? "")
    case .number: self = .number(Double(String(decoding: json.raw(value), as: UTF8.self)) ?? 0)
    case .boolean: self = .boolean(json.boolean(value) ?? false)
    case .null: self = .null
    }
  }

  /// A member of an object; nil for none.
  public subscript(_ name: String) -> PhoneJSON? {
    if case .object(let members) = self { members[name] } else { nil }
  }

  /// The value if it is a string; numbers and booleans are not converted.
  public var text: String? {
    if case .text(let text) = self { text } else { nil }
  }

  /// The value that Swift's `as? Bool` accepts from a property list: a boolean, or the numbers 0 and 1.
  public var bridgedBoolean: Bool? {
    switch self {
    case .boolean(let value): value
    case .number(0): false
    case .number(1): true
    default: nil
    }
  }

  /// Whether it is `null`, which is different from missing.
  public var isNull: Bool { self == .null }

  /// Whether it is true in JavaScript: any string except the empty one is.
  public var isTruthy: Bool {
    switch self {
    case .text(let text): !text.isEmpty
    case .number(let number): number != 0
    case .boolean(let value): value
    case .null: false
    case .object, .array: true
    }
  }

  /// The members of an object; none for anything else.
  public var members: [String: PhoneJSON] {
    if case .object(let members) = self { members } else { [:] }
  }
}

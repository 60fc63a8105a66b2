// Parses one line of the input of `push-gateway enqueue` and of a load test: a call as JSON.

internal import Runtime

/// `{"app": "porteiro", "payload": {…}, "recipients": […], "ringSeconds": 60}`
package struct CallLine: Equatable, Sendable {
  /// The number of the line, from 1.
  package var number: Int
  /// The app; nil: the database's default.
  package var app: [UInt8]?
  package var payload: [UInt8]
  package var recipients: [UInt8]
  package var ringSeconds: Int32?

  /// What is wrong with a line. Contains names of keys, but no values.
  package struct Fault: Error, Equatable, CustomStringConvertible {
    package var line: Int
    package var message: String
    /// Whether the form of the whole file is wrong, so that the faults of its other lines say nothing.
    package var isOfFile: Bool
    package var description: String { "line \(line): \(message)" }

    package init(line: Int, message: String, isOfFile: Bool = false) {
      self.line = line
      self.message = message
      self.isOfFile = isOfFile
    }
  }

  private static let keys = ["app", "payload", "recipients", "ringSeconds"]

  /// The fault of a file of one JSON value over several lines, or of an array, by the line with which it begins; nil: it is neither.
  private static func form(of text: [UInt8]) -> ((Int) -> Fault)? {
    switch text.first(where: { $0 != 0x20 && $0 != 0x09 }) {
    case UInt8(ascii: "["):
      {
        Fault(
          line: $0, message: "is an array; write one call a line: jq -c '.[]' FILE | push-gateway enqueue -",
          isOfFile: true)
      }
    case UInt8(ascii: "{"):
      {
        Fault(
          line: $0,
          message: "ends within a JSON object; write each call in one line: jq -c . FILE | push-gateway enqueue -",
          isOfFile: true)
      }
    default: nil
    }
  }

  /// - Throws: if the form is wrong. The database checks the values.
  package init(_ text: [UInt8], number: Int) throws(Fault) {
    func fault(_ message: String) -> Fault { Fault(line: number, message: message) }
    let json: JSONScanner
    do throws(JSONError) {
      json = try JSONScanner(text)
    } catch {
      if error.reason == .unexpectedEnd, let form = Self.form(of: text) { throw form(number) }
      throw fault(error.description)
    }
    if json.root.kind == .array, let form = Self.form(of: text) { throw form(number) }
    guard json.root.kind == .object else { throw fault("must be a JSON object") }
    var values: [String: JSONScanner.Value] = [:]
    for member in json.members(of: json.root) {
      let key = String(decoding: json.key(member), as: UTF8.self)
      guard Self.keys.contains(key) else {
        throw fault("unknown key \(key.prefix(64))" + Suggestion.text(for: key, among: Self.keys))
      }
      values[key] = member.value
    }
    guard let payload = values["payload"] else { throw fault("payload is missing") }
    guard payload.kind == .object else { throw fault("payload must be an object") }
    guard let recipients = values["recipients"] else { throw fault("recipients is missing") }
    guard recipients.kind == .array else { throw fault("recipients must be an array") }
    self.number = number
    self.payload = Array(json.raw(payload))
    self.recipients = Array(json.raw(recipients))
    if let value = values["app"], value.kind != .null {
      guard let app = json.string(value) else { throw fault("app must be a string") }
      self.app = app
    }
    if let value = values["ringSeconds"], value.kind != .null {
      guard let seconds = json.integer(value).flatMap({ Int32(exactly: $0) }) else {
        throw fault("ringSeconds must be a whole number")
      }
      ringSeconds = seconds
    }
  }
}

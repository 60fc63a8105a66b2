// A part of the configuration with free names, such as an app's templates: converted from YAML to JSON, with the lines
// of its members.

internal import Runtime
internal import Yams

struct ConfigurationTree {
  /// The mapping as a JSON object.
  let json: String
  private let origin: ConfigurationProblem.Origin
  /// By the path of a member, joined with dots.
  private let lines: [String: Int]

  /// - Parameter origin: the place of the whole tree. Members of a file have the lines of the text.
  /// - Throws: if the text is not a YAML mapping.
  init(text: String, origin: ConfigurationProblem.Origin) throws(ConfigurationYAML.Fault) {
    guard case .mapping(let mapping)? = try ConfigurationYAML.compose(text) else {
      throw ConfigurationYAML.Fault(message: "must be a mapping, in YAML or JSON: {PROVIDER: {KIND: {…}}}")
    }
    try self.init(mapping, origin: origin)
  }

  init(_ mapping: Node.Mapping, origin: ConfigurationProblem.Origin) throws(ConfigurationYAML.Fault) {
    var builder = Builder()
    try builder.append(mapping, at: "")
    json = String(decoding: builder.json.bytes, as: UTF8.self)
    lines = builder.lines
    self.origin = origin
  }

  /// The place of a member, or of the innermost mapping around it.
  func origin(of member: String) -> ConfigurationProblem.Origin {
    origin.at(line: line(of: member))
  }

  private func line(of member: String) -> Int? {
    var path = member[...]
    while true {
      if let line = lines[String(path)] { return line }
      guard let dot = path.lastIndex(of: ".") else { return nil }
      path = path[..<dot]
    }
  }

  private struct Builder {
    var json = JSONWriter(reservingCapacity: 4096)
    var lines: [String: Int] = [:]

    mutating func append(_ mapping: Node.Mapping, at path: String) throws(ConfigurationYAML.Fault) {
      json.beginObject()
      for (key, value) in mapping {
        guard let name = key.scalar?.string else {
          throw ConfigurationYAML.Fault(line: key.mark?.line, message: "a key must be a plain word")
        }
        let here = path.isEmpty ? name : "\(path).\(name)"
        lines[here] = key.mark?.line
        json.key(Array(name.utf8))
        try append(value, at: here)
      }
      json.endObject()
    }

    private mutating func append(_ node: Node, at path: String) throws(ConfigurationYAML.Fault) {
      switch node {
      case .mapping(let mapping): try append(mapping, at: path)
      case .sequence(let sequence):
        json.beginArray()
        for element in sequence { try append(element, at: path) }
        json.endArray()
      case .scalar(let scalar):
        if scalar.style == .plain, Self.isJSON(scalar.string) {
          json.raw(Array(scalar.string.utf8))
        } else {
          json.string(scalar.string)
        }
      case .alias:
        throw ConfigurationYAML.Fault(line: node.mark?.line, message: "an alias must name an anchor above it")
      }
    }

    /// Whether a text without quotes is a JSON literal. YAML's other literals stay texts: `no` is a language here.
    private static func isJSON(_ text: String) -> Bool {
      guard let scanner = try? JSONScanner(Array(text.utf8)) else { return false }
      return [.number, .boolean, .null].contains(scanner.root.kind)
    }
  }
}

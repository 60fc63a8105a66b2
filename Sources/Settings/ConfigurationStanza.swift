// A new app in the text of a configuration, whose other lines and comments stay as they are.

/// The lines of one app below `apps`.
package struct ConfigurationStanza {
  /// Why an app cannot be added.
  package struct Failure: Error, CustomStringConvertible {
    package let description: String
  }

  private let name: String
  /// Keys and values, in order. A key with an empty list of values is a section without keys.
  private let sections: [(key: String, values: [(key: String, value: String)])]

  /// - Parameters:
  ///   - name: the name of the app.
  ///   - settings: keys of the app with their values.
  ///   - sections: its sections with their keys and values.
  package init(
    app name: String, settings: [(key: String, value: String)],
    sections: [(key: String, values: [(key: String, value: String)])]
  ) {
    self.name = name
    self.sections = [("", settings)] + sections
  }

  /// The stanza, indented by `indentation` blanks.
  package func lines(indentation: Int = 2) -> [String] {
    let blanks = { String(repeating: " ", count: indentation * $0) }
    var lines = ["\(blanks(1))\(name):"]
    for (key, values) in sections {
      if !key.isEmpty { lines.append("\(blanks(2))\(key):\(values.isEmpty ? " {}" : "")") }
      for (name, value) in values { lines.append("\(blanks(key.isEmpty ? 2 : 3))\(name): \(Self.scalar(value))") }
    }
    return lines
  }

  /// The text with this app at the end of its section `apps`.
  ///
  /// - Throws: `Failure` if the section is not written as a block.
  package func added(to text: String) throws(Failure) -> String {
    var lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    guard let head = lines.firstIndex(where: { $0.hasPrefix("apps:") }) else {
      if lines.last == "" { lines.removeLast() }
      return (lines + ["apps:"] + self.lines() + [""]).joined(separator: "\n")
    }
    let rest = lines[head].dropFirst("apps:".count).drop { $0 == " " }
    guard rest.isEmpty || rest.hasPrefix("#") else {
      throw Failure(
        description: "apps is written on one line, in braces: write each app on lines of its own below apps: first")
    }
    let after = lines[(head + 1)...].firstIndex { !Self.isBlank($0) && !$0.hasPrefix(" ") } ?? lines.endIndex
    let block = head + 1..<after
    let first = lines[block].first { !Self.isBlank($0) }
    let indentation = first.map { $0.prefix { $0 == " " }.count } ?? 2
    let end = lines[block].lastIndex { !Self.isBlank($0) }.map { $0 + 1 } ?? head + 1
    lines.insert(contentsOf: self.lines(indentation: indentation), at: end)
    return lines.joined(separator: "\n")
  }

  /// Whether a line is empty or only a comment.
  private static func isBlank(_ line: String) -> Bool {
    let content = line.drop { $0 == " " || $0 == "\t" || $0 == "\r" }
    return content.isEmpty || content.hasPrefix("#")
  }

  /// A value in YAML: as it is if that is certainly read as the same text, otherwise in quotes.
  private static func scalar(_ value: String) -> String {
    let isPlain =
      value.first.map { $0.isLetter || $0 == "/" || $0.isNumber } ?? false
      && value.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "._/-".contains($0)) }
    if isPlain, !["true", "false", "null", "yes", "no", "on", "off"].contains(value.lowercased()) { return value }
    return "\"" + value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
  }
}

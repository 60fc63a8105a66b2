// embed-text OUTPUT NAME FILE …: writes OUTPUT, a Swift file in which the text of each FILE is a string literal, under its NAME.

import Foundation

@main
struct EmbedTextTool {
  static func main() {
    do {
      try run(CommandLine.arguments)
    } catch {
      FileHandle.standardError.write(Data("embed-text: \(error)\n".utf8))
      exit(1)
    }
  }

  private static func run(_ arguments: [String]) throws {
    guard arguments.count > 3, arguments.count.isMultiple(of: 2) else {
      throw EmbedTextFailure("usage: embed-text OUTPUT NAME FILE …")
    }
    var lines = [
      "// Files of the repository: path below their folder, and text.", "", "enum EmbeddedFiles {",
      "  static let all: [(path: String, text: String)] = [",
    ]
    let files = stride(from: 2, to: arguments.count, by: 2).map { (name: arguments[$0], path: arguments[$0 + 1]) }
    lines += files.indices.map { "    (\"\(files[$0].name)\", file\($0))," }
    lines += ["  ]", "}"]
    for (index, file) in files.enumerated() {
      let text = try text(of: URL(fileURLWithPath: file.path), named: file.name)
      // A literal's last line break, the one before its closing quotes, is not part of the text.
      lines += ["", "private let file\(index) = ###\"\"\"", text, "\"\"\"###"]
    }
    let text = lines.joined(separator: "\n") + "\n"
    // A build runs this tool more often than the files change. An output that is not written is not compiled again.
    guard (try? String(contentsOfFile: arguments[1], encoding: .utf8)) != text else { return }
    try text.write(toFile: arguments[1], atomically: true, encoding: .utf8)
  }

  private static func text(of file: URL, named name: String) throws -> String {
    guard let text = String(validating: try Data(contentsOf: file), as: UTF8.self) else {
      throw EmbedTextFailure("\(name): is not UTF-8")
    }
    for word in ["\"\"\"###", "\\###", "\r"] where text.contains(word) {
      throw EmbedTextFailure("\(name): holds \(word.debugDescription), which a literal cannot hold as it is")
    }
    return text
  }
}

struct EmbedTextFailure: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}

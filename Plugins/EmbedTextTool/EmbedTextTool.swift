// embed-text FOLDER OUTPUT FILE …: writes OUTPUT, a Swift file in which each FILE of FOLDER is a string literal.

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
    guard arguments.count > 3 else { throw EmbedTextFailure("usage: embed-text FOLDER OUTPUT FILE …") }
    let folder = URL(fileURLWithPath: arguments[1])
    var lines = [
      "// Every file of \(folder.lastPathComponent)/: path below it, and text.", "", "enum EmbeddedFiles {",
      "  static let all: [(path: String, text: String)] = [",
    ]
    let paths = arguments[3...]
    lines += paths.indices.map { "    (\"\(paths[$0])\", file\($0))," }
    lines += ["  ]", "}"]
    for index in paths.indices {
      let text = try text(of: folder.appending(path: paths[index]), named: paths[index])
      // A literal's last line break, the one before its closing quotes, is not part of the text.
      lines += ["", "private let file\(index) = ###\"\"\"", text, "\"\"\"###"]
    }
    let text = lines.joined(separator: "\n") + "\n"
    // A build runs this tool more often than the files change. An output that is not written is not compiled again.
    guard (try? String(contentsOfFile: arguments[2], encoding: .utf8)) != text else { return }
    try text.write(toFile: arguments[2], atomically: true, encoding: .utf8)
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

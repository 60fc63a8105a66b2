// Reads YAML. Errors do not quote the text, which may contain a secret.

internal import Yams

enum ConfigurationYAML {
  struct Fault: Error {
    var line: Int?
    var message: String
  }

  /// The root; nil if the text is empty.
  static func compose(_ text: String) throws(Fault) -> Node? {
    do {
      return try Yams.compose(yaml: text)
    } catch {
      let error = error as? YamlError
      throw Fault(line: error.flatMap(line), message: "is not YAML: \(error.map(reason) ?? unreadable)")
    }
  }

  private static let unreadable = "it cannot be read"

  private static func line(of error: YamlError) -> Int? {
    switch error {
    case .scanner(_, _, let mark, _), .parser(_, _, let mark, _), .composer(_, _, let mark, _): mark.line
    case .duplicatedKeysInMapping(_, let context): context.mark.line
    default: nil
    }
  }

  /// The parser's reason without the part of the file that it quotes.
  private static func reason(of error: YamlError) -> String {
    switch error {
    case .scanner(_, let problem, _, _), .parser(_, let problem, _, _), .composer(_, let problem, _, _): problem
    case .duplicatedKeysInMapping(let keys, _):
      "the key \(keys.first ?? "") appears twice in the section that begins here"
    default: unreadable
    }
  }
}

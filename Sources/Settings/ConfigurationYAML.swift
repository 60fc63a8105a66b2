// Reads YAML. Errors do not quote the text, which may contain a secret.

internal import Foundation
internal import Runtime
internal import Yams

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

enum ConfigurationYAML {
  struct Fault: Error {
    var line: Int?
    var message: String
  }

  /// The text of a file.
  static func text(ofFile path: String) throws(Fault) -> String {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      let reason = unsafe String(cString: strerror(errno))
      let remedy = path.hasPrefix("~") ? "; ~ was not expanded, write the absolute path" : ""
      throw Fault(message: errno == ENOENT ? "there is no such file\(remedy)" : "cannot be read (\(reason))")
    }
    defer { close(descriptor) }
    var status = stat()
    if unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFDIR {
      throw Fault(message: "is a directory, not a file")
    }
    guard let data = try? FileHandle(fileDescriptor: descriptor, closeOnDealloc: false).readToEnd() ?? Data() else {
      throw Fault(message: "cannot be read")
    }
    let bytes = Array(data).withoutByteOrderMark
    if let text = String(validating: bytes, as: UTF8.self), !text.utf8.contains(0) { return text }
    if bytes.starts(with: [0xFF, 0xFE]) || bytes.starts(with: [0xFE, 0xFF]) || bytes.contains(0) {
      throw Fault(message: "is not UTF-8, but UTF-16 or binary: save it as UTF-8")
    }
    let lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    let line = lines.firstIndex { String(validating: $0, as: UTF8.self) == nil }
    throw Fault(line: line.map { $0 + 1 }, message: "is not UTF-8, perhaps Latin-1: save the file as UTF-8")
  }

  /// The root; nil if the text is empty.
  static func compose(_ text: String) throws(Fault) -> Node? {
    do {
      return try Yams.compose(yaml: text)
    } catch {
      let error = error as? YamlError
      let fault = Fault(line: error.flatMap(line), message: error.map(reason) ?? unreadable)
      let better = fault.line.flatMap { layoutFault(of: text, near: $0, fault.message) } ?? fault
      throw Fault(line: better.line, message: "is not YAML: \(better.message)")
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

  /// What is wrong with the layout near a line, where the parser only says what it did not find; nil: nothing that is known.
  private static func layoutFault(of text: String, near number: Int, _ problem: String) -> Fault? {
    let lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
    guard lines.indices.contains(number - 1) else { return nil }
    let line = lines[number - 1]
    if problem == "found character that cannot start any token" {
      return line.prefix(while: { $0 != "#" }).contains("\t")
        ? Fault(line: number, message: "has a tab; indent with blanks")
        : Fault(line: number, message: "a value that begins with @, ` or % must be in quotes")
    }
    guard ["did not find expected key", "mapping values are not allowed in this context"].contains(problem) else {
      return nil
    }
    let above = lines.indices.prefix(number - 1).filter { !isBlank(lines[$0]) }
    guard let last = above.last else { return nil }
    let (own, former) = (indentation(line), indentation(lines[last]))
    if line.firstRange(of: ": ").map({ line[$0.upperBound...].contains(": ") }) == true {
      return Fault(line: number, message: "a value with a colon and a blank in it must be in quotes")
    }
    if lines[last].contains(":"), !lines[last].contains(": "), !lines[last].hasSuffix(":") {
      return Fault(line: last + 1, message: "the colon after a key needs a blank behind it")
    }
    if own > former {
      return Fault(line: number, message: "is indented deeper than line \(last + 1), which has a value already")
    }
    guard own < former, !above.contains(where: { indentation(lines[$0]) == own }) else { return nil }
    return Fault(line: number, message: "is indented by \(own) blanks, as no line above it is")
  }

  private static func isBlank(_ line: Substring) -> Bool { line.first { $0 != " " } ?? "#" == "#" }

  private static func indentation(_ line: Substring) -> Int { line.prefix { $0 == " " }.count }
}

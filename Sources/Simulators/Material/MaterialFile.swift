// Reads and writes the small files of a simulator's directory.

internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

enum MaterialFile {
  /// Creates a directory and its parents; an existing one is no error.
  static func makeDirectory(_ path: String) throws(FileDescriptor.SystemError) {
    if unsafe mkdir(path, 0o755) == 0 || errno == EEXIST { return }
    guard errno == ENOENT, let slash = path.lastIndex(of: "/"), slash != path.startIndex else {
      throw FileDescriptor.SystemError(call: "mkdir \(path)", code: errno)
    }
    try makeDirectory(String(path[..<slash]))
    guard unsafe mkdir(path, 0o755) == 0 || errno == EEXIST else {
      throw FileDescriptor.SystemError(call: "mkdir \(path)", code: errno)
    }
  }

  /// The absolute path without `.`, `..` and links.
  static func absolute(_ path: String) throws(FileDescriptor.SystemError) -> String {
    guard let resolved = unsafe realpath(path, nil) else {
      throw FileDescriptor.SystemError(call: "realpath \(path)", code: errno)
    }
    defer { unsafe free(resolved) }
    return unsafe String(cString: resolved)
  }

  /// Replaces a file atomically: a reader sees the old content or the new.
  /// - Parameter isSecret: whether only its owner may read it.
  static func write(_ content: [UInt8], to path: String, isSecret: Bool = false) throws(FileDescriptor.SystemError) {
    let draft = "\(path).draft"
    let mode: mode_t = isSecret ? 0o600 : 0o644
    let descriptor = unsafe open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
    guard descriptor >= 0 else { throw FileDescriptor.SystemError(call: "open \(draft)", code: errno) }
    let file = FileDescriptor(owning: descriptor)
    try file.writeAll(content)
    guard unsafe rename(draft, path) == 0 else {
      throw FileDescriptor.SystemError(call: "rename \(draft)", code: errno)
    }
  }

  /// The content of a file, or nil if it cannot be read.
  static func read(_ path: String) -> [UInt8]? {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    let file = FileDescriptor(owning: descriptor)
    var content: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 16 * 1024)
    do {
      while case let count = try file.readSome(into: &chunk), count > 0 { content.append(contentsOf: chunk[..<count]) }
    } catch {
      return nil
    }
    return content
  }

  /// Creates an empty temporary directory.
  static func makeTemporaryDirectory() throws(FileDescriptor.SystemError) -> String {
    let parent = unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? "/tmp"
    var template = Array("\(parent)/push-gateway-simulators.XXXXXX".utf8CString)
    guard unsafe mkdtemp(&template) != nil else { throw FileDescriptor.SystemError(call: "mkdtemp", code: errno) }
    return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}

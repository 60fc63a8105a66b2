// Reads a file or standard input line by line, whatever its size.

internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Reads lines of a limited length.
package struct LineReader {
  /// Maximum length of a line, about five times that of a call with a thousand recipients.
  package static let lengthMax = 1 << 20

  private let descriptor: FileDescriptor
  private let name: String
  private var buffer: [UInt8] = []
  private var start = 0
  private var isAtEnd = false
  private var isAtStart = true

  /// - Parameter path: the file; `-` is standard input.
  package init(path: String) throws(CommandFailure) {
    let number = path == "-" ? dup(0) : unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard number >= 0 else { throw CommandFailure("\(path): \(unsafe String(cString: strerror(errno)))") }
    descriptor = FileDescriptor(owning: number)
    name = path == "-" ? "standard input" : path
  }

  /// The next line without its line break, and the first one without a byte order mark; nil after the last one.
  package mutating func next() throws(CommandFailure) -> [UInt8]? {
    defer { isAtStart = false }
    return isAtStart ? try line()?.withoutByteOrderMark : try line()
  }

  private mutating func line() throws(CommandFailure) -> [UInt8]? {
    var searched = start
    while true {
      if let end = buffer[searched...].firstIndex(of: 0x0A) {
        let line = buffer[start..<end]
        start = end + 1
        return Array(line.last == 0x0D ? line.dropLast() : line)
      }
      if isAtEnd {
        defer { start = buffer.count }
        return start < buffer.count ? Array(buffer[start...]) : nil
      }
      buffer.removeFirst(start)
      start = 0
      searched = buffer.count
      guard searched <= Self.lengthMax else {
        throw CommandFailure("\(name): a line is longer than \(Self.lengthMax) bytes")
      }
      try fill()
    }
  }

  private mutating func fill() throws(CommandFailure) {
    var chunk = [UInt8](repeating: 0, count: 1 << 16)
    var count = -1
    repeat { count = unsafe read(descriptor.rawValue, &chunk, chunk.count) } while count < 0 && errno == EINTR
    guard count >= 0 else { throw CommandFailure("\(name): \(unsafe String(cString: strerror(errno)))") }
    if count == 0 { isAtEnd = true }
    buffer.append(contentsOf: chunk[..<count])
  }
}

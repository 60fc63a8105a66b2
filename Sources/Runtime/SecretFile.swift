// Small files that hold a secret: keys, service accounts, access tokens. Read whole, or refused with the path and the
// reason.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Reads files that hold a secret. Errors name the path, never the content.
public enum SecretFile {
  /// No secret is larger; a file that is was named by mistake.
  public static let sizeMax = 64 * 1024

  /// A file that cannot be read.
  public struct Failure: Error, Equatable, CustomStringConvertible, Sendable {
    public enum Reason: Equatable, Sendable {
      case missing
      case tooLarge
      /// The system's words.
      case unreadable(String)
    }

    public var reason: Reason
    public var path: String

    public init(_ reason: Reason, path: String) {
      self.reason = reason
      self.path = path
    }

    public var description: String {
      switch reason {
      case .missing: "\(path): no such file"
      case .tooLarge: "\(path): larger than \(SecretFile.sizeMax) bytes, so it is not the file that was meant"
      case .unreadable(let why): "\(path): cannot be read (\(why)): check its permissions"
      }
    }
  }

  /// The whole file.
  public static func read(_ path: String) throws(Failure) -> [UInt8] {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      throw errno == ENOENT ? Failure(.missing, path: path) : Failure(.unreadable(systemReason("open")), path: path)
    }
    let file = FileDescriptor(owning: descriptor)
    var content: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 4096)
    while true {
      let count = Self.read(file, into: &chunk)
      guard count >= 0 else { throw Failure(.unreadable(systemReason("read")), path: path) }
      guard count > 0 else { return content }
      content.append(contentsOf: chunk[..<count])
      guard content.count <= sizeMax else { throw Failure(.tooLarge, path: path) }
    }
  }

  private static func read(_ file: FileDescriptor, into chunk: inout [UInt8]) -> Int {
    while true {
      #if canImport(Glibc)
      let count = unsafe Glibc.read(file.rawValue, &chunk, chunk.count)
      #else
      let count = unsafe Darwin.read(file.rawValue, &chunk, chunk.count)
      #endif
      if count >= 0 || errno != EINTR { return count }
    }
  }

  private static func systemReason(_ call: String) -> String { FileDescriptor.SystemError(call: call).description }
}

// The owner of a descriptor: closed when the last reference goes.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// An open descriptor, non-blocking and close-on-exec, closed with its owner.
public final class FileDescriptor: Sendable {
  public let rawValue: Int32

  /// Takes over an open descriptor.
  public init(owning rawValue: Int32) {
    self.rawValue = rawValue
  }

  deinit {
    close(rawValue)
  }

  /// A failed system call.
  public struct SystemError: Error, CustomStringConvertible, Sendable {
    public let call: String
    public let code: Int32
    public var description: String { unsafe "\(call): \(String(cString: strerror(code)))" }
    public init(call: String, code: Int32) {
      self.call = call
      self.code = code
    }
    /// The system call that just failed, with `errno`.
    init(call: String) {
      self.init(call: call, code: errno)
    }
  }

  /// Sets O_NONBLOCK and FD_CLOEXEC.
  public static func makeNonBlocking(_ descriptor: Int32) throws(SystemError) {
    guard fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) == 0 else {
      throw SystemError(call: "fcntl")
    }
    guard fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0 else { throw SystemError(call: "fcntl") }
  }

  /// A pipe whose two ends do not block.
  static func pipe() throws(SystemError) -> (read: FileDescriptor, write: FileDescriptor) {
    var ends: [Int32] = [-1, -1]
    #if canImport(Glibc)
    let status = unsafe Glibc.pipe(&ends)
    #else
    let status = unsafe Darwin.pipe(&ends)
    #endif
    guard status == 0 else { throw SystemError(call: "pipe") }
    let pipe = (read: FileDescriptor(owning: ends[0]), write: FileDescriptor(owning: ends[1]))
    try makeNonBlocking(ends[0])
    try makeNonBlocking(ends[1])
    return pipe
  }

  /// Writes one byte. A full pipe has the same effect.
  func writeByte() {
    var byte: UInt8 = 1
    _ = unsafe write(rawValue, &byte, 1)
  }

  /// Reads until nothing is left.
  func drain() {
    var buffer: (UInt64, UInt64) = (0, 0)
    while unsafe read(rawValue, &buffer, 16) == 16 {}
  }

  /// Reads from a descriptor that blocks; repeated after an interruption.
  ///
  /// - Returns: the number of bytes put at the start of `buffer`; 0 at the end of the file.
  public func readSome(into buffer: inout [UInt8]) throws(SystemError) -> Int {
    while true {
      #if canImport(Glibc)
      let count = unsafe Glibc.read(rawValue, &buffer, buffer.count)
      #else
      let count = unsafe Darwin.read(rawValue, &buffer, buffer.count)
      #endif
      if count >= 0 { return count }
      guard errno == EINTR else { throw SystemError(call: "read") }
    }
  }

  /// Writes all bytes to a descriptor that blocks. With O_APPEND and on a local disk they stay together unless the disk is full.
  public func writeAll(_ bytes: [UInt8]) throws(SystemError) {
    var rest = bytes[...]
    while !rest.isEmpty {
      #if canImport(Glibc)
      let count = unsafe rest.withUnsafeBytes { unsafe Glibc.write(rawValue, $0.baseAddress, $0.count) }
      #else
      let count = unsafe rest.withUnsafeBytes { unsafe Darwin.write(rawValue, $0.baseAddress, $0.count) }
      #endif
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { throw SystemError(call: "write") }
      rest = rest.dropFirst(count)
    }
  }
}

// The log file of accepted pushes. Several simulators append to the same file, so each write contains only whole lines.

internal import Logging
internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// An append-only file of JSON lines.
struct SimulatorLog {
  private let file: FileDescriptor
  private let path: String
  private let logger = Logger(label: "simulator.log")

  /// Opens the file, or creates it.
  /// - Throws: the system's error if the file cannot be opened.
  init(path: String) throws(FileDescriptor.SystemError) {
    let descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644)
    guard descriptor >= 0 else { throw FileDescriptor.SystemError(call: "open \(path)", code: errno) }
    file = FileDescriptor(owning: descriptor)
    self.path = path
  }

  /// Writes lines. If this fails, the error is reported and the lines are lost.
  func write(_ lines: [UInt8]) {
    var rest = lines[...]
    while !rest.isEmpty {
      #if canImport(Glibc)
      let count = unsafe rest.withUnsafeBytes { unsafe Glibc.write(file.rawValue, $0.baseAddress, $0.count) }
      #else
      let count = unsafe rest.withUnsafeBytes { unsafe Darwin.write(file.rawValue, $0.baseAddress, $0.count) }
      #endif
      if count < 0, errno == EINTR { continue }
      guard count > 0 else {
        logger.error("cannot write the simulator's log", metadata: ["path": "\(path)", "errno": "\(errno)"])
        return
      }
      rest = rest.dropFirst(count)
    }
  }
}

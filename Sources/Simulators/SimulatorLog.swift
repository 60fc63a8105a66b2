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
    do {
      try file.writeAll(lines)
    } catch {
      logger.error("cannot write the simulator's log", metadata: ["path": "\(path)", "errno": "\(error.code)"])
    }
  }
}

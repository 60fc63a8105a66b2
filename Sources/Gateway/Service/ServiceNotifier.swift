// Reports the state of the process to systemd (sd_notify(3)): ready, alive, stopping. Without systemd it does nothing.

import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// The socket of a `Type=notify` unit, named by NOTIFY_SOCKET.
struct ServiceNotifier: Sendable {
  enum State: String {
    case ready = "READY=1"
    case stopping = "STOPPING=1"
    /// Resets the timer of the watchdog.
    case watchdog = "WATCHDOG=1"
  }

  private let path: String?

  init(environment: [String: String] = ProcessInfo.processInfo.environment) {
    path = environment["NOTIFY_SOCKET"]
  }

  /// - Parameter status: the text that `systemctl status` shows from now on; nil: unchanged.
  func notify(_ state: State, status: String? = nil) {
    guard let path else { return }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    var name = Array(path.utf8)
    guard !name.isEmpty, name.count < MemoryLayout.size(ofValue: address.sun_path) else { return }
    if name[0] == UInt8(ascii: "@") { name[0] = 0 }  // an abstract socket
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: name) }
    #if canImport(Glibc)
    let socket = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    #else
    let socket = Darwin.socket(AF_UNIX, SOCK_DGRAM, 0)
    #endif
    guard socket >= 0 else { return }
    defer { close(socket) }
    let message = Array("\(state.rawValue)\n\(status.map { "STATUS=\($0)\n" } ?? "")".utf8)
    let length = socklen_t(MemoryLayout.offset(of: \sockaddr_un.sun_path).map { $0 + name.count } ?? 0)
    unsafe withUnsafePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
        _ = unsafe sendto(socket, message, message.count, 0, address, length)
      }
    }
  }
}

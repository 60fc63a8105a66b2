// A blocking TCP socket for tests. It reads on threads of its own, because the server's tasks share the threads of
// Dispatch.

import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A connection to a server on this machine.
package struct TestSocket: Sendable {
  package struct Failure: Error {
    package var code: Int32
  }

  package let descriptor: Int32

  /// - Parameter host: the local address to connect from. `127.0.0.2` is another peer than `127.0.0.1`.
  package init(port: Int, from host: String = "127.0.0.1") throws {
    #if canImport(Glibc)
    descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    #else
    descriptor = socket(AF_INET, SOCK_STREAM, 0)
    #endif
    guard descriptor >= 0 else { throw Failure(code: errno) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    if host != "127.0.0.1" {
      inet_pton(AF_INET, host, &address.sin_addr)
      let status = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
        }
      }
      guard status == 0 else {
        let failure = Failure(code: errno)
        close()
        throw failure
      }
    }
    address.sin_port = UInt16(port).bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let status = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard status == 0 else {
      let failure = Failure(code: errno)
      close()
      throw failure
    }
    // If the server hangs, the test fails instead of hanging.
    var timeout = timeval(tv_sec: 60, tv_usec: 0)
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
      setsockopt(descriptor, SOL_SOCKET, option, &timeout, socklen_t(MemoryLayout<timeval>.size))
    }
  }

  package func close() {
    #if canImport(Glibc)
    _ = Glibc.close(descriptor)
    #else
    _ = Darwin.close(descriptor)
    #endif
  }

  /// Sends the bytes, and reads until the server closes.
  package func exchange(_ bytes: [UInt8]) async -> [UInt8] {
    await onThread {
      write(bytes)
      var answer: [UInt8] = []
      while let more = read() { answer += more }
      return answer
    }
  }

  /// Sends the bytes, and reads the next bytes that arrive.
  package func ask(_ bytes: [UInt8]) async -> [UInt8] {
    await onThread {
      write(bytes)
      return read() ?? []
    }
  }

  /// The next bytes that arrive; empty at the end.
  package func next() async -> [UInt8] {
    await onThread { read() ?? [] }
  }

  /// Sends until the server reads no more.
  package func write(_ bytes: [UInt8]) {
    var sent = 0
    while sent < bytes.count {
      let count = bytes[sent...].withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      guard count > 0 else { return }
      sent += count
    }
  }

  /// The same on a thread of its own, because it may wait.
  package func writeApart(_ bytes: [UInt8]) async {
    _ = await onThread {
      write(bytes)
      return []
    }
  }

  private func read() -> [UInt8]? {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    let count = recv(descriptor, &buffer, buffer.count, 0)
    return count > 0 ? Array(buffer[..<count]) : nil
  }

  private func onThread(_ work: @escaping @Sendable () -> [UInt8]) async -> [UInt8] {
    await withCheckedContinuation { continuation in
      Thread.detachNewThread { continuation.resume(returning: work()) }
    }
  }
}

// A relay that can go silent: it simulates a device on the path that forgets a connection.

import Foundation
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// Relays bytes between clients that connect to `port` and a server on this machine.
///
/// It uses blocking threads, a few for each connection, which is enough for a test.
public final class TCPRelay: Sendable {
  public let port: UInt16

  private struct State {
    var target: UInt16
    var isSilent = false
    /// Connections with a smaller number receive nothing any more.
    var firstHeard = 0
    var count = 0
    var descriptors: [Int32] = []
    var isStopped = false
  }

  private let listener: Int32
  private let state: Mutex<State>

  public struct Failure: Error {}

  /// - Parameter target: the port of the server on 127.0.0.1.
  public init(to target: UInt16) throws {
    state = Mutex(State(target: target))
    let listener = Self.makeSocket()
    self.listener = listener
    var address = Self.address(of: 0)
    let isBound = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(listener, $0, Self.addressLength) == 0 }
    }
    guard isBound, listen(listener, 64) == 0 else { throw Failure() }
    var length = Self.addressLength
    _ = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(listener, $0, &length) }
    }
    port = UInt16(bigEndian: address.sin_port)
    Thread.detachNewThread { [self] in acceptAll() }
  }

  /// From now on no bytes are relayed. Connections stay open, and new ones are accepted.
  public func fallSilent() {
    state.withLock {
      $0.isSilent = true
      $0.firstHeard = $0.count
    }
  }

  /// New connections work; existing ones stay silent.
  public func speakAgain() {
    state.withLock {
      $0.isSilent = false
      $0.firstHeard = $0.count
    }
  }

  /// New connections are relayed to another server.
  public func move(to target: UInt16) {
    state.withLock { $0.target = target }
  }

  /// Number of connections made.
  public var connectionCount: Int { state.withLock { $0.count } }

  public func stop() {
    let descriptors = state.withLock {
      $0.isStopped = true
      return $0.descriptors
    }
    for descriptor in descriptors + [listener] { shutdown(descriptor, Int32(SHUT_RDWR)) }
  }

  // MARK: - Threads

  private func acceptAll() {
    while case let client = accept(listener, nil, nil), client >= 0 {
      let server = Self.makeSocket()
      let (number, target) = state.withLock { state in
        state.count += 1
        state.descriptors += [client, server]
        return (state.count - 1, state.target)
      }
      var address = Self.address(of: target)
      let isConnected = withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(server, $0, Self.addressLength) == 0 }
      }
      if !isConnected || state.withLock({ $0.isStopped }) {
        shutdown(client, Int32(SHUT_RDWR))
        continue
      }
      Thread.detachNewThread { [self] in pass(number, from: client, to: server) }
      Thread.detachNewThread { [self] in pass(number, from: server, to: client) }
    }
  }

  private func pass(_ number: Int, from source: Int32, to target: Int32) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while case let count = read(source, &buffer, buffer.count), count > 0 {
      let isHeard = state.withLock { !$0.isSilent && number >= $0.firstHeard }
      if isHeard, Self.write(buffer, count, to: target) != count { break }
    }
    shutdown(target, Int32(SHUT_RDWR))
  }

  // MARK: - Sockets

  private static let addressLength = socklen_t(MemoryLayout<sockaddr_in>.size)

  private static func makeSocket() -> Int32 {
    #if canImport(Glibc)
    socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    #else
    socket(AF_INET, SOCK_STREAM, 0)
    #endif
  }

  /// Without SIGPIPE if the other end has closed.
  private static func write(_ bytes: [UInt8], _ count: Int, to descriptor: Int32) -> Int {
    #if canImport(Glibc)
    send(descriptor, bytes, count, Int32(MSG_NOSIGNAL))
    #else
    send(descriptor, bytes, count, 0)
    #endif
  }

  private static func address(of port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    return address
  }
}

// A relay that can go silent: it simulates a device on the path that forgets a connection, or stands still in the middle of a statement.

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
    /// Connections that stood still, by their numbers.
    var stopped: Set<Int> = []
    /// What to withhold, in this order.
    var withheld: [(count: Int, text: [UInt8])] = []
    var count = 0
    var descriptors: [Int32] = []
    var isStopped = false

    func isHeard(_ number: Int) -> Bool { !isSilent && number >= firstHeard && !stopped.contains(number) }

    /// How many of a connection's bytes are relayed.
    mutating func heard(of bytes: ArraySlice<UInt8>, _ number: Int, _ isRequest: Bool) -> Int {
      guard isHeard(number) else { return 0 }
      guard isRequest, let next = withheld.first, bytes.firstRange(of: next.text) != nil else { return bytes.count }
      withheld.removeFirst()
      stopped.insert(number)
      return max(0, bytes.count - next.count)
    }
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

  /// Of the next bytes from a client that contain this text, the last `count` are not relayed, and nothing after them: their
  /// connection is silent from then on. If called again, that is for the bytes after those. A Sync of Postgres is the last 5 bytes.
  public func withhold(last count: Int, of text: String) {
    state.withLock { $0.withheld.append((count, Array(text.utf8))) }
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
      Thread.detachNewThread { [self] in pass(number, from: client, to: server, isRequest: true) }
      Thread.detachNewThread { [self] in pass(number, from: server, to: client, isRequest: false) }
    }
  }

  /// The end of a silent connection is not relayed either.
  private func pass(_ number: Int, from source: Int32, to target: Int32, isRequest: Bool) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while case let count = read(source, &buffer, buffer.count), count > 0 {
      let heard = state.withLock { $0.heard(of: buffer[..<count], number, isRequest) }
      if heard > 0, Self.write(buffer, heard, to: target) != heard { break }
    }
    if state.withLock({ $0.isHeard(number) }) { shutdown(target, Int32(SHUT_RDWR)) }
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

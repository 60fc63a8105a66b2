// A proxy that answers CONNECT with given bytes, and never opens a tunnel.

import Foundation
import Runtime

/// Listens on 127.0.0.1; answers every request head with the same bytes.
// @unchecked: everything except `port` and `loop` is used only on the loop.
public final class HostileProxy: @unchecked Sendable {
  /// What follows the answer.
  public enum Ending: Sendable {
    /// The connection stays open, and nothing is sent.
    case silence
    case close
    /// These bytes, repeatedly, as fast as the client reads them.
    case endless([UInt8])
  }

  private final class Client {
    let socket: FileDescriptor
    var watch: EventLoop.Watch?
    var request: [UInt8] = []
    var isAnswered = false

    init(_ socket: FileDescriptor) { self.socket = socket }
  }

  public let loop = EventLoop(name: "hostile-proxy")
  public let port: UInt16
  private let listener: TCPListener
  private var answer: [UInt8]
  private var ending: Ending
  private var clients: [Client] = []
  private var heads: [String] = []

  public init(_ answer: String, then ending: Ending = .silence) throws {
    self.answer = Array(answer.utf8)
    self.ending = ending
    listener = try TCPListener(on: SocketAddress(numericHost: "127.0.0.1", port: 0)!, loop: loop)
    port = listener.port
    loop.execute { [self] in
      listener.start { [weak self] socket in self?.accept(socket) }
    }
  }

  deinit {
    loop.stop()
  }

  /// The request heads that it got, whole.
  public func received() async -> [String] {
    await withCheckedContinuation { continuation in
      loop.execute { [self] in continuation.resume(returning: heads) }
    }
  }

  private func accept(_ socket: FileDescriptor) {
    let client = Client(socket)
    clients.append(client)
    client.watch = loop.watch(socket.rawValue, for: .readable) { [weak self, unowned client] _ in
      self?.advance(client)
    }
  }

  private func advance(_ client: Client) {
    if client.isAnswered, case .endless(let bytes) = ending {
      let count = send(client.socket.rawValue, bytes, bytes.count, Int32(MSG_NOSIGNAL))
      if count < 0, errno != EAGAIN { leave(client) }
      return
    }
    var buffer = [UInt8](repeating: 0, count: 4096)
    let count = read(client.socket.rawValue, &buffer, buffer.count)
    if count < 0, errno == EAGAIN { return }
    guard count > 0 else { return leave(client) }
    guard !client.isAnswered else { return }
    client.request += buffer[..<count]
    guard client.request.suffix(4) == Array("\r\n\r\n".utf8)[...] else { return }
    heads.append(String(decoding: client.request, as: UTF8.self))
    client.isAnswered = true
    _ = send(client.socket.rawValue, answer, answer.count, Int32(MSG_NOSIGNAL))
    switch ending {
    case .silence: break
    case .close: leave(client)
    case .endless: if let watch = client.watch { loop.update(watch, for: .writable) }
    }
  }

  private func leave(_ client: Client) {
    if let watch = client.watch { loop.unwatch(watch) }
    client.watch = nil
    shutdown(client.socket.rawValue, Int32(SHUT_RDWR))
    clients.removeAll { $0 === client }
  }
}

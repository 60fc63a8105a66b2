// A TCP proxy that can forget its connections, as a NAT does: it then forwards nothing and closes nothing.

import Foundation
import Runtime

/// Forwards connections on 127.0.0.1 to a server there.
// @unchecked: everything except `port` and `loop` is used only on the loop.
public final class ForgetfulProxy: @unchecked Sendable {
  /// Bytes on their way from one socket to another.
  private final class Pipe {
    let source: FileDescriptor
    let destination: FileDescriptor
    private let loop: EventLoop
    private var reading: EventLoop.Watch?
    private var pending: [UInt8] = []
    private let whenClosed: () -> Void
    var isForgotten = false

    init(_ source: FileDescriptor, _ destination: FileDescriptor, _ loop: EventLoop, whenClosed: @escaping () -> Void) {
      self.source = source
      self.destination = destination
      self.loop = loop
      self.whenClosed = whenClosed
    }

    func start() {
      reading = loop.watch(source.rawValue, for: .readable) { [weak self] _ in self?.forward() }
    }

    func stop() {
      if let reading { loop.unwatch(reading) }
      reading = nil
    }

    private func forward() {
      var buffer = [UInt8](repeating: 0, count: 65_536)
      let count = read(source.rawValue, &buffer, buffer.count)
      if count < 0, errno == EAGAIN { return }
      guard count > 0 else { return whenClosed() }
      guard !isForgotten else { return }
      pending += buffer[..<count]
      flush()
    }

    private func flush() {
      let count = send(destination.rawValue, pending, pending.count, Int32(MSG_NOSIGNAL))
      if count > 0 { pending.removeFirst(count) }
      guard !pending.isEmpty else { return }
      loop.schedule(at: loop.now + .milliseconds(1)) { [weak self] in self?.flush() }
    }
  }

  public let loop = EventLoop(name: "proxy")
  public let port: UInt16
  private weak var server: HTTP2TestServer?
  private let target: SocketAddress
  private let listener: TCPListener
  private var pipes: [[Pipe]] = []
  /// New connections are also forgotten from the start: nothing is forwarded, not even a handshake.
  private var isSevered = false

  public init(to server: HTTP2TestServer) throws {
    self.server = server
    target = SocketAddress(numericHost: "127.0.0.1", port: server.port)!
    listener = try TCPListener(on: SocketAddress(numericHost: "127.0.0.1", port: 0)!, loop: loop)
    self.port = listener.port
    loop.execute { [self] in
      listener.start { [weak self] socket in self?.accept(socket) }
    }
  }

  deinit {
    loop.stop()
  }

  /// The loops on the way of a request.
  public var loops: [EventLoop] { [loop] + (server.map { [$0.loop] } ?? []) }

  /// Forgets all existing connections; new ones are forwarded.
  public func forget() async {
    await perform { proxy in for pipe in proxy.pipes.joined() { pipe.isForgotten = true } }
  }

  /// Forgets all existing and new connections, or forwards new ones again.
  public func sever(_ isSevered: Bool = true) async {
    await forget()
    await perform { $0.isSevered = isSevered }
  }

  /// The endpoint, for clients that trust the CA.
  public func endpoint(host: String = "127.0.0.1") throws -> HTTP2Endpoint {
    HTTP2Endpoint(host: host, port: port, tls: try TestCertificates.shared.client())
  }

  private func perform(_ body: @escaping @Sendable (ForgetfulProxy) -> Void) async {
    await withCheckedContinuation { continuation in
      loop.execute { [self] in
        body(self)
        continuation.resume()
      }
    }
  }

  private func accept(_ client: FileDescriptor) {
    guard let server = try? TCPSocket.connect(to: target) else { return }
    var both: [Pipe] = []
    let close = { [weak self] in
      guard let self, let index = pipes.firstIndex(where: { $0.first?.source === client }) else { return }
      for pipe in pipes[index] { pipe.stop() }
      for pipe in pipes[index] { shutdown(pipe.destination.rawValue, Int32(SHUT_RDWR)) }
      pipes.remove(at: index)
    }
    both = [
      Pipe(client, server, loop, whenClosed: close), Pipe(server, client, loop, whenClosed: close),
    ]
    pipes.append(both)
    for pipe in both {
      pipe.isForgotten = isSevered
      pipe.start()
    }
  }
}

// An HTTP/2 server that a test controls, and that can also violate the protocol.

import Runtime

/// A server on 127.0.0.1. `handler` is called on the server's loop for each request.
// @unchecked: everything except `port` and `loop` is used only on the loop.
public final class HTTP2TestServer: @unchecked Sendable {
  /// One request, to be answered now, later or never.
  public struct Exchange {
    public let connection: Connection
    public let stream: Int32
    public let message: HTTP2Message

    public func respond(_ status: Int, _ fields: [(String, String)] = [], body: String = "", ends: Bool = true) {
      var headers = HTTP2HeaderBlock()
      headers.add(":status", String(status))
      for (name, value) in fields { headers.add(name: Array(name.utf8), value: Array(value.utf8)) }
      connection.session.respond(to: stream, headers, body: Array(body.utf8), ends: ends)
      connection.flushLater()
    }
  }

  /// One client's connection.
  public final class Connection: TLSStreamDelegate {
    public let session: HTTP2ServerSession
    public let number: Int
    let stream: TLSStream
    /// The frames that the client has sent.
    public private(set) var received = HTTP2FrameCount()
    private weak var server: HTTP2TestServer?  // a test's server may be released before its clients
    private var requests: [HTTP2Request] = []

    init(_ stream: TLSStream, number: Int, server: HTTP2TestServer) {
      self.stream = stream
      self.number = number
      self.server = server
      session = HTTP2ServerSession(settings: server.settings)
    }

    public func flushLater() {
      stream.loop.atEndOfTurn { [self] in
        guard server?.isMute != true else { return }
        try? session.send(into: &stream.output)
        stream.flush()
      }
    }

    public var loop: EventLoop { stream.loop }
    /// Adds an exchange to the server's `held`.
    public func hold(_ exchange: Exchange) { server?.held.append(exchange) }
    /// The held exchanges of this connection.
    public var held: [Exchange] { server?.held.filter { $0.connection === self } ?? [] }
    /// Adds to the counts of the connection's server.
    public func note(_ name: String, _ count: Int = 1) { server?.notes[name, default: 0] += count }

    public func noted(_ name: String) -> Int { server?.notes[name] ?? 0 }

    /// Makes the whole server send nothing any more.
    public func mute() { server?.isMute = true }

    /// Closes without GOAWAY.
    public func drop() {
      stream.close()
      server?.connections.removeAll { $0 === self }
    }

    public func streamDidOpen(_ stream: TLSStream) { flushLater() }
    public func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer) {
      received.take(bytes)
      try? session.receive(bytes)
    }
    public func streamDidProgress(_ stream: TLSStream) {
      session.drainRequests(into: &requests)
      for request in requests {
        server?.requestCount += 1
        server?.handler(Exchange(connection: self, stream: request.stream, message: request.message))
      }
      flushLater()
    }
    public func stream(_ stream: TLSStream, didCloseWith error: TLSError?) {
      server?.connections.removeAll { $0 === self }
    }
  }

  public let loop = EventLoop(name: "test-server")
  public let port: UInt16
  let settings: HTTP2SessionSettings
  public var handler: (Exchange) -> Void
  public var connections: [Connection] = []
  public var connectionCount = 0
  public var requestCount = 0
  /// Exchanges that a test answers later.
  public var held: [Exchange] = []
  /// A count for the test's own use.
  public var notes: [String: Int] = [:]
  /// Reads everything and sends nothing, not even SETTINGS or the answer to a PING.
  public var isMute = false
  private let listener: TCPListener
  private let context: TLSContext

  public init(settings: HTTP2SessionSettings = HTTP2SessionSettings(), handler: @escaping (Exchange) -> Void) throws {
    self.settings = settings
    self.handler = handler
    let certificates = TestCertificates.shared
    context = try TLSContext.server(certificateFile: certificates.certificateFile, keyFile: certificates.keyFile)
    listener = try TCPListener(on: SocketAddress(numericHost: "127.0.0.1", port: 0)!, loop: loop)
    port = listener.port
    loop.execute { [self] in
      listener.start { [weak self] socket in self?.accept(socket) }
    }
  }

  deinit {
    loop.stop()
  }

  private func accept(_ socket: FileDescriptor) {
    guard let stream = try? TLSStream(socket, context: context, loop: loop) else { return }
    let connection = Connection(stream, number: connectionCount, server: self)
    connectionCount += 1
    connections.append(connection)
    stream.delegate = connection
    stream.start()
  }

  /// The endpoint, for clients that trust the CA.
  public func endpoint(host: String = "localhost") throws -> HTTP2Endpoint {
    HTTP2Endpoint(host: host, port: port, tls: try TestCertificates.shared.client())
  }

  /// Runs `body` on the server's loop.
  public func perform<Result: Sendable>(_ body: @escaping @Sendable (HTTP2TestServer) -> Result) async -> Result {
    await withCheckedContinuation { continuation in
      loop.execute { [self] in continuation.resume(returning: body(self)) }
    }
  }
}

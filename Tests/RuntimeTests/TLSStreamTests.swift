// Tests of TLS as a client: which certificates it trusts, and its errors.

import COpenSSL
import HTTP2TestSupport
import Testing

@testable import Runtime

/// Connects to 127.0.0.1 and waits for the handshake's end.
// @unchecked: touched on the loop only, and after the end by the test.
private final class Handshake: TLSStreamDelegate, @unchecked Sendable {
  private let loop = EventLoop(name: "tls-client")
  private var stream: TLSStream?
  private var continuation: CheckedContinuation<Result<String?, TLSError>, Never>?

  /// The negotiated protocol, or the error.
  func run(port: UInt16, host: String, context: TLSContext) async -> Result<String?, TLSError> {
    let result = await withCheckedContinuation { continuation in
      loop.execute { [self] in
        self.continuation = continuation
        // The kernel accepts a connection to a listener of this machine by itself; TLS waits for the rest.
        let socket = try! TCPSocket.connect(to: SocketAddress(numericHost: "127.0.0.1", port: port)!)
        stream = try! TLSStream(socket, context: context, host: host, loop: loop)
        stream!.delegate = self
        stream!.start()
      }
    }
    loop.stop()
    return result
  }

  func streamDidOpen(_ stream: TLSStream) { end(.success(stream.negotiatedProtocol)) }
  func stream(_ stream: TLSStream, didCloseWith error: TLSError?) {
    end(.failure(error ?? TLSError(.connection, "closed")))
  }
  func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer) {}
  func streamDidProgress(_ stream: TLSStream) {}

  private func end(_ result: Result<String?, TLSError>) {
    continuation?.resume(returning: result)
    continuation = nil
  }
}

private func failure(_ result: Result<String?, TLSError>) -> TLSError? {
  if case .failure(let error) = result { error } else { nil }
}

@Suite(.timeLimit(.minutes(10))) struct TLSStreamTests {
  let server: HTTP2TestServer
  let shared = TestCertificates.shared

  init() throws {
    server = try HTTP2TestServer { $0.respond(200) }
  }

  @Test(arguments: ["localhost", "127.0.0.1"])
  func `a certificate for the name is accepted`(host: String) async throws {
    let result = await Handshake().run(port: server.port, host: host, context: try shared.client())
    #expect(try result.get() == "h2")
  }

  @Test(arguments: ["api.push.apple.com", "127.0.0.2", "sub.localhost"])
  func `a certificate for another name is refused`(host: String) async throws {
    let error = failure(await Handshake().run(port: server.port, host: host, context: try shared.client()))
    #expect(error?.code == .verification)
    let text = try #require(error).description
    #expect(text.contains("the certificate of \(host) is not accepted"))
    #expect(text.contains("mismatch"))
  }

  @Test func `a certificate of an unknown CA is refused`() async throws {
    for context in [try TLSContext.client(), try TestCertificates.stranger.client()] {
      let error = failure(await Handshake().run(port: server.port, host: "localhost", context: context))
      #expect(error?.code == .verification)
      #expect(try #require(error).description.contains("the certificate of localhost is not accepted"))
    }
  }

  @Test func `a server that does not negotiate the protocol is refused`() async throws {
    let context = try TLSContext.client(caFile: shared.caFile, protocols: ["http/1.1"])
    let error = failure(await Handshake().run(port: server.port, host: "localhost", context: context))
    #expect(try #require(error).description.contains("no application protocol"))
  }

  @Test func `an invalid host name is refused before anything is sent`() throws {
    let socket = try TCPSocket.connect(to: SocketAddress(numericHost: "127.0.0.1", port: server.port)!)
    #expect(throws: TLSError.self) {
      try TLSStream(socket, context: try shared.client(), host: nil, loop: server.loop)
    }
  }

  // MARK: - TLS messages on an open connection

  @Test func `renegotiation is refused`() throws {
    let noRenegotiation: UInt64 = 1 << 30  // SSL_OP_NO_RENEGOTIATION
    #expect(SSL_CTX_get_options(try shared.client().handle) & noRenegotiation != 0)
  }

  @Test(arguments: [(10, true), (500, false)])
  func `key updates are counted`(count: Int, isTaken: Bool) async throws {
    let server = try KeyChangingServer(changes: count)
    let error = await FirstByte().run(port: server.port, context: try shared.client())
    server.loop.stop()
    #expect((error == nil) == isTaken)
    if let error { #expect(error.description.contains("more TLS messages")) }
  }
}

/// Changes its keys as soon as a connection is open, then sends a byte.
// @unchecked: used only on the loop.
private final class KeyChangingServer: TLSStreamDelegate, @unchecked Sendable {
  let loop = EventLoop(name: "key-server")
  let port: UInt16
  private let changes: Int
  private let listener: TCPListener
  private let context: TLSContext
  private var streams: [TLSStream] = []

  init(changes: Int) throws {
    self.changes = changes
    let certificates = TestCertificates.shared
    context = try TLSContext.server(certificateFile: certificates.certificateFile, keyFile: certificates.keyFile)
    listener = try TCPListener(on: SocketAddress(numericHost: "127.0.0.1", port: 0)!, loop: loop)
    port = listener.port
    loop.execute { [self] in listener.start { [self] in accept($0) } }
  }

  private func accept(_ socket: FileDescriptor) {
    let stream = try! TLSStream(socket, context: context, loop: loop)
    streams.append(stream)
    stream.delegate = self
    stream.start()
  }

  func streamDidOpen(_ stream: TLSStream) {
    for _ in 0..<changes {
      SSL_key_update(stream.ssl, SSL_KEY_UPDATE_NOT_REQUESTED)
      SSL_do_handshake(stream.ssl)
    }
    stream.output.append(1)
    stream.flush()
  }
  func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer) {}
  func streamDidProgress(_ stream: TLSStream) {}
  func stream(_ stream: TLSStream, didCloseWith error: TLSError?) {}
}

/// Waits for the first byte, or for an error before it.
// @unchecked: used only on the loop.
private final class FirstByte: TLSStreamDelegate, @unchecked Sendable {
  private let loop = EventLoop(name: "tls-listener")
  private var stream: TLSStream?
  private var continuation: CheckedContinuation<TLSError?, Never>?

  func run(port: UInt16, context: TLSContext) async -> TLSError? {
    let error = await withCheckedContinuation { continuation in
      loop.execute { [self] in
        self.continuation = continuation
        let socket = try! TCPSocket.connect(to: SocketAddress(numericHost: "127.0.0.1", port: port)!)
        stream = try! TLSStream(socket, context: context, host: "localhost", loop: loop)
        stream!.delegate = self
        stream!.start()
      }
    }
    loop.stop()
    return error
  }

  private func end(_ error: TLSError?) {
    continuation?.resume(returning: error)
    continuation = nil
  }

  func streamDidOpen(_ stream: TLSStream) {}
  func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer) { end(nil) }
  func streamDidProgress(_ stream: TLSStream) {}
  func stream(_ stream: TLSStream, didCloseWith error: TLSError?) { end(error ?? TLSError(.connection, "closed")) }
}

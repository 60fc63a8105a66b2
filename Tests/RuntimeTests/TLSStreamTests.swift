// TLS as a client sees it: whom it believes, and what it says when it does not.

import HTTP2TestSupport
import Runtime
import Testing

/// Connects to 127.0.0.1 and waits for the handshake's end.
// @unchecked: touched on the loop only, and after the end by the test.
private final class Handshake: TLSStreamDelegate, @unchecked Sendable {
  private let loop = EventLoop(name: "tls-client")
  private var stream: TLSStream?
  private var continuation: CheckedContinuation<Result<String?, TLSError>, Never>?

  /// The protocol agreed on, or what went wrong.
  func run(port: UInt16, host: String, context: TLSContext) async -> Result<String?, TLSError> {
    let result = await withCheckedContinuation { continuation in
      loop.execute { [self] in
        self.continuation = continuation
        // The kernel completes a connection to this machine's listener by itself; TLS waits for what is missing.
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

@Suite(.timeLimit(.minutes(1))) struct TLSStreamTests {
  let server: HTTP2TestServer
  let shared = TestCertificates.shared

  init() throws {
    server = try HTTP2TestServer { $0.respond(200) }
  }

  @Test(arguments: ["localhost", "127.0.0.1"])
  func aCertificateForTheNameIsBelieved(host: String) async throws {
    let result = await Handshake().run(port: server.port, host: host, context: try shared.client())
    #expect(try result.get() == "h2")
  }

  @Test(arguments: ["api.push.apple.com", "127.0.0.2", "sub.localhost"])
  func aCertificateForAnotherNameIsNot(host: String) async throws {
    let error = failure(await Handshake().run(port: server.port, host: host, context: try shared.client()))
    #expect(error?.code == .verification)
    let text = try #require(error).description
    #expect(text.contains("the certificate of \(host) is not accepted"))
    #expect(text.contains("mismatch"))
  }

  @Test func aCertificateOfAnUnknownCAIsNot() async throws {
    for context in [try TLSContext.client(), try TestCertificates.stranger.client()] {
      let error = failure(await Handshake().run(port: server.port, host: "localhost", context: context))
      #expect(error?.code == .verification)
      #expect(try #require(error).description.contains("the certificate of localhost is not accepted"))
    }
  }

  @Test func aServerThatDoesNotSpeakTheProtocolIsNoUse() async throws {
    let context = try TLSContext.client(caFile: shared.caFile, protocols: ["http/1.1"])
    let error = failure(await Handshake().run(port: server.port, host: "localhost", context: context))
    #expect(try #require(error).description.contains("no application protocol"))
  }

  @Test func aHostThatIsNoNameIsRefusedBeforeAnythingIsSent() throws {
    let socket = try TCPSocket.connect(to: SocketAddress(numericHost: "127.0.0.1", port: server.port)!)
    #expect(throws: TLSError.self) {
      try TLSStream(socket, context: try shared.client(), host: nil, loop: server.loop)
    }
  }
}

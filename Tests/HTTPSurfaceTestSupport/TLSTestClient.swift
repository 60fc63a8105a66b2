// A client with the TLS of the connections to providers.

import Foundation
import Runtime

/// One connection to a listener on this machine.
// @unchecked: touched on its loop only.
package final class TLSTestClient: TLSStreamDelegate, @unchecked Sendable {
  private let loop = EventLoop(name: "tls-test-client")
  private var stream: TLSStream?
  private var received: [UInt8] = []
  private var isOpen = false
  private var isClosed = false
  private var failure: TLSError?
  private var awaited: (isThere: () -> Bool, CheckedContinuation<Void, Never>)?

  /// Connects and begins the handshake.
  ///
  /// - Parameter caFile: the authorities that the client trusts.
  package init(port: Int, caFile: String) throws {
    let context = try TLSContext.client(caFile: caFile, protocols: ["http/1.1"])
    loop.execute { [self] in
      let socket = try! TCPSocket.connect(to: SocketAddress(numericHost: "127.0.0.1", port: UInt16(port))!)
      stream = try! TLSStream(socket, context: context, host: "localhost", loop: loop)
      stream!.delegate = self
      stream!.start()
    }
  }

  deinit { loop.stop() }

  /// The result of the handshake: the agreed protocol, or the error.
  package func handshake() async -> Result<String?, TLSError> {
    await wait { [self] in isOpen || isClosed }
    return await onLoop { [self] in isOpen ? .success(stream!.negotiatedProtocol) : .failure(reason) }
  }

  /// Sends a request, and waits for its answer or the end of the connection.
  package func ask(_ request: String) async -> APIAnswer {
    await onLoop { [self] in
      received = []
      stream!.output += Array(request.utf8)
      stream!.flush()
    }
    await wait { [self] in isClosed || APIAnswer(received).isWhole }
    return await onLoop { [self] in APIAnswer(received) }
  }

  package func get(_ path: String) async -> Int { await ask("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n").status }

  /// Waits for the server to close.
  package func end() async { await wait { [self] in isClosed } }

  package func close() async { await onLoop { [self] in stream?.close() } }

  private var reason: TLSError { failure ?? TLSError(.connection, "closed") }

  // MARK: - The loop

  private func onLoop<Value: Sendable>(_ work: @escaping () -> Value) async -> Value {
    nonisolated(unsafe) let work = work
    return await withCheckedContinuation { continuation in
      loop.execute { continuation.resume(returning: work()) }
    }
  }

  private func wait(_ isThere: @escaping () -> Bool) async {
    nonisolated(unsafe) let isThere = isThere
    await withCheckedContinuation { continuation in
      loop.execute { [self] in
        awaited = (isThere, continuation)
        look()
      }
    }
  }

  private func look() {
    guard let (isThere, continuation) = awaited, isThere() else { return }
    awaited = nil
    continuation.resume()
  }

  package func streamDidOpen(_ stream: TLSStream) {
    isOpen = true
    look()
  }

  package func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer) {
    received += bytes
    look()
  }

  package func streamDidProgress(_ stream: TLSStream) {}

  package func stream(_ stream: TLSStream, didCloseWith error: TLSError?) {
    isClosed = true
    failure = error
    look()
  }
}

extension APIAnswer {
  /// Whether the answer is complete, according to its Content-Length.
  fileprivate var isWhole: Bool { status != 0 && body.utf8.count >= (headers["content-length"].flatMap(Int.init) ?? 0) }
}

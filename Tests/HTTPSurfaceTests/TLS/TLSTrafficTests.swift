// TLS of a listener under traffic, on real sockets: large bodies in both directions, clients that read slowly or leave
// in the middle, and a certificate that changes under them.

import COpenSSL
import Foundation
import HTTP2TestSupport
import HTTPSurfaceTestSupport
import Hummingbird
import Logging
import NIOCore
import Runtime
import ServiceLifecycle
import TestTime
import Testing

@testable import HTTPSurface

private func request(_ body: [UInt8]) -> [UInt8] {
  Array("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.count)\r\n\r\n".utf8) + body
}

/// Connects, and completes the handshake.
private func connect(_ port: Int, believing caFile: String) async throws -> (TestSocket, TLSTestPeer) {
  let socket = try TestSocket(port: port)
  let client = TLSTestPeer(caFile: caFile)
  var toServer = client.take()
  while !client.isOpen, client.failure == nil {
    let answer = await socket.ask(toServer)
    guard !answer.isEmpty else { break }
    toServer = client.take(answer)
  }
  socket.write(toServer)
  return (socket, client)
}

@Suite(.timeLimit(.minutes(10))) struct TLSTrafficTests {
  private let pki: ListenerPKI
  private let credentials: ListenerCredentials

  init() throws {
    pki = try ListenerPKI()
    credentials = try ListenerCredentials("api", pki.settings(), privacy: .required, logger: Self.quiet)
  }

  private static var quiet: Logger { Logger(label: "test") { _ in SwiftLogNoOpLogHandler() } }

  /// A server that sends back what it gets, as it gets it.
  private func withEcho(_ body: (_ port: Int) async throws -> Void) async throws {
    let router = Router()
    router.post("echo") { request, _ in Response(status: .ok, body: ResponseBody(asyncSequence: request.body)) }
    let (ports, listening) = AsyncStream.makeStream(of: Int.self)
    let server = Application(
      router: router, server: .http1(configuration: .init(), credentials: credentials, logger: Self.quiet),
      configuration: ApplicationConfiguration(address: .hostname("127.0.0.1", port: 0)),
      onServerRunning: { listening.yield($0.localAddress!.port!) }, logger: Self.quiet)
    let group = ServiceGroup(services: [server], logger: Self.quiet)
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      tasks.addTask {
        defer { listening.finish() }
        try await group.run()
      }
      let port = try #require(await ports.first { _ in true })
      do {
        try await body(port)
      } catch {
        await group.triggerGracefulShutdown()
        throw error
      }
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
    }
  }

  @Test(arguments: ["--tlsv1.3", "--tls-max 1.2", "--tlsv1.3 --limit-rate 2M"])
  func `curl gets back each byte of four megabytes, on one connection`(options: String) async throws {
    try await withEcho { port in
      let said = try await ListenerPKI.runApart(
        """
        cd \(pki.folder) && head -c 1048576 /dev/urandom > body
        url=https://localhost:\(port)/echo
        curl -sS -m 100 --cacert \(pki.ours.caFile) \(options) -w '%{num_connects}' -H 'Content-Type: x' -H 'Expect:' \
          --data-binary @body -o answer.1 $url -o answer.2 $url -o answer.3 $url -o answer.4 $url
        for n in 1 2 3 4; do cmp body answer.$n && echo same; done
        """)
      #expect(said.contains("1000"), "\(said)")
      #expect(said.matches(of: /same/).count == 4, "\(said)")
    }
  }

  @Test func `a client that reads nothing for a while gets everything, and others are served meanwhile`() async throws {
    try await withEcho { port in
      let body = [UInt8](repeating: 7, count: 4 << 20)
      let (slow, client) = try await connect(port, believing: pki.ours.caFile)
      let bytes = client.send(request(body))
      async let sent: Void = slow.writeApart(bytes)
      try await letPass(.milliseconds(300), "the server has read what it reads, and waits for the client")
      let (other, quick) = try await connect(port, believing: pki.ours.caFile)
      _ = quick.take(await other.ask(quick.send(request([1, 2, 3]))))
      #expect(quick.received.starts(with: "HTTP/1.1 200".utf8))
      while client.received.count < body.count, client.failure == nil {
        let bytes = await slow.next()
        guard !bytes.isEmpty else { break }
        _ = client.take(bytes)
      }
      await sent
      // The answer has a head, and is sent in chunks of any length.
      #expect(client.received.count { $0 == 7 } == body.count)
      for socket in [slow, other] { socket.close() }
    }
  }

  @Test func `a certificate that changes under traffic costs no request`() async throws {
    let both = pki.folder + "/both.pem"
    try ListenerPKI.run("cat \(pki.ours.caFile) \(pki.others.caFile) > \(both)")
    try await withEcho { port in
      let served = try await withThrowingTaskGroup(of: Int.self) { tasks in
        for _ in 0..<4 {
          tasks.addTask {
            var served = 0
            for _ in 0..<25 {
              let (socket, client) = try await connect(port, believing: both)
              _ = client.take(await socket.ask(client.send(request([1, 2, 3]))))
              if client.received.starts(with: "HTTP/1.1 200".utf8) { served += 1 }
              socket.close()
            }
            return served
          }
        }
        for round in 0..<50 {
          let pair = round % 2 == 0 ? pki.others : pki.ours
          try pki.install(certificateOf: pair)
          try pki.install(keyOf: pair)
          credentials.reload()
          try await letPass(.milliseconds(5), "handshakes begin between two changes")
        }
        return try await tasks.reduce(0, +)
      }
      #expect(served == 100)
    }
  }

  @Test func `a client that leaves in the middle of the handshake is counted as such`() async throws {
    try await withEcho { port in
      for _ in 0..<3 {
        let socket = try TestSocket(port: port)
        let client = TLSTestPeer(caFile: pki.ours.caFile)
        #expect(await socket.ask(client.take()).first == 22)
        socket.close()
      }
      try await eventually("three handshakes failed") { credentials.handshakeFailures.count(.closed) == 3 }
      #expect(credentials.handshakeFailures.count(.protocol) == 0)
    }
  }
}

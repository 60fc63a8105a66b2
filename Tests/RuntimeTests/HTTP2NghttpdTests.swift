// Tests of the HTTP/2 connection over real TLS with nghttpd.

import HTTP2TestSupport
import Runtime
import Testing

private func endpoint(_ port: UInt16, host: String = "localhost", tls: TLSContext? = nil) throws -> HTTP2Endpoint {
  HTTP2Endpoint(host: host, port: port, tls: try tls ?? TestCertificates.shared.client())
}

@Suite("HTTP/2 connection to nghttpd", .timeLimit(.minutes(10))) struct HTTP2NghttpdTests {
  @Test(arguments: ["localhost", "127.0.0.1"])
  func `requests are answered`(host: String) async throws {
    let server = try NghttpdServer()
    let probe = ConnectionProbe(try endpoint(server.port, host: host))
    await probe.wait { !$0.limits.isEmpty }
    #expect(probe.limits == [100])
    probe.request(["/index.html", "/missing"])
    await probe.wait { $0.ended.count == 2 }
    #expect(probe.kind(0) == "200")
    #expect(probe.kind(1) == "404")
    #expect(probe.ended[0]?.sentAt != nil)
    probe.perform { $0.drain() }
    await probe.wait { $0.isClosed }
    #expect(probe.error == nil)
    probe.stop()
  }

  @Test func `queued requests without a valid permit are refused when the connection is lost`() async throws {
    let server = try NghttpdServer()
    let probe = ConnectionProbe(try endpoint(server.port))
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/index.html"])
    await probe.wait { $0.ended.count == 1 }
    probe.withhold([0, 1])
    probe.request(["/index.html", "/missing"])
    await probe.wait { $0.isClosed }
    #expect(probe.kind(0) == "refused")
    #expect(probe.kind(1) == "refused")
    #expect(probe.ended[0]?.sentAt == nil)
    probe.stop()
  }

  @Test func `a queued request without a valid permit is refused, and the others are sent`() async throws {
    let server = try NghttpdServer("-m", "1")
    let probe = ConnectionProbe(try endpoint(server.port))
    await probe.wait { !$0.limits.isEmpty }
    // The first gets the only stream; the others wait for it, and one of them may not be written.
    probe.request(["/index.html"])
    probe.withhold([2])
    probe.request(["/index.html", "/missing"], first: 1)
    await probe.wait { $0.ended.count == 3 }
    #expect(probe.kind(0) == "200")
    #expect(probe.kind(1) == "200")
    #expect(probe.kind(2) == "refused")
    #expect(probe.ended[2]?.sentAt == nil)
    #expect(!probe.isClosed)
    probe.stop()
  }

  @Test func `a thousand requests share the streams that the server allows`() async throws {
    let server = try NghttpdServer("-m", "3")
    let probe = ConnectionProbe(try endpoint(server.port))
    await probe.wait { !$0.limits.isEmpty }
    #expect(probe.limits == [3])
    probe.request([String](repeating: "/index.html", count: 1000))
    await probe.wait { $0.ended.count == 1000 }
    #expect(probe.statuses == [UInt16](repeating: 200, count: 1000))
    #expect(probe.endings == 1000)
    probe.stop()
  }

  @Test func `a large body passes small windows in both directions`() async throws {
    let server = try NghttpdServer("--echo-upload", "-w", "10", "-W", "16")
    let body = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }
    let probe = ConnectionProbe(try endpoint(server.port)) {
      $0.session.bodyBytesMax = 2_000_000
      $0.session.budget.creditsMax = 100_000
      $0.session.streamWindowBytes = 20_000
      $0.outputBytesMax = 10_000
    }
    await probe.wait { !$0.limits.isEmpty }
    probe.request(["/a", "/b", "/c"], body: body)
    await probe.wait { $0.ended.count == 3 }
    for tag in 0..<3 {
      guard case .response(let message) = probe.ended[tag]?.result else {
        Issue.record("\(probe.kind(tag))")
        continue
      }
      #expect(message.body == body)
    }
    probe.stop()
  }

  @Test func `the error for a closed port says that the connection was refused`() async throws {
    let port = try ServerProcess.freePort()
    let probe = ConnectionProbe(try endpoint(port, host: "127.0.0.1"))
    await probe.wait { $0.isClosed }
    let error = try #require(probe.error).description
    #expect(error.contains("127.0.0.1:\(port)"))
    #expect(error.lowercased().contains("connection refused"))
    probe.stop()
  }
}

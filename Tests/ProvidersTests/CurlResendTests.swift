// libcurl does not send a request again by itself if it is lost on a reused connection.

import HTTP2TestSupport
import Runtime
import Testing

@testable import Providers

@Suite("libcurl sends nothing twice", .timeLimit(.minutes(10))) struct CurlResendTests {
  @Test
  func `over HTTP 1.1, a request whose connection closes has arrived once, and its outcome is unknown`() async throws {
    let server = try CurlTestServer.shared.get()
    let bench = ProviderBench<ExpoProvider>(port: UInt16(server.port), caFile: server.caFile)
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)  // now there is a connection to reuse
    let token = "vanish-\(UInt64.random(in: .min ... .max))"
    await bench.provider.send([bench.request(1, token: token)])
    let result = await bench.reports.results(2)[1]
    #expect(result?.outcome == .unknown(reason: "ConnectionLost"))
    #expect(result?.sentAt != nil)
    #expect(try await arrivals(of: token, at: server) == "1")
    #expect(await bench.push(2).outcome.isAccepted)
    await bench.stop()
  }

  @Test
  func `over HTTP 2, a request whose connection closes has arrived once, and its outcome is unknown`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note("arrivals")
      if exchange.connection.noted("arrivals") == 2 { exchange.connection.drop() } else { exchange.acceptTicket() }
    }
    let bench = ProviderBench<ExpoProvider>(port: server.port, peers: [server.loop])
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    let result = await bench.push(1)
    #expect(result.outcome == .unknown(reason: "ConnectionLost"))
    #expect(result.sentAt != nil)
    #expect(await server.perform { $0.notes["arrivals"] } == 2)
    #expect(await bench.push(2).outcome.isAccepted)
    await bench.stop()
  }

  @Test(arguments: [
    HTTP2ErrorCode.refusedStream, .internalError,
  ])
  func `over HTTP 2, libcurl does not send a request again whose stream was refused or reset`(code: HTTP2ErrorCode)
    async throws
  {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note("arrivals")
      guard exchange.connection.noted("arrivals") == 2 else { return exchange.acceptTicket() }
      exchange.connection.session.reset(exchange.stream, code)
    }
    let bench = ProviderBench<ExpoProvider>(port: server.port, peers: [server.loop])
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    #expect(await bench.push(1).outcome == .unknown(reason: "ConnectionLost"))
    #expect(await server.perform { $0.notes["arrivals"] } == 2)
    await bench.stop()
  }

  private func arrivals(of token: String, at server: CurlTestServer) async throws -> String {
    let loop = EventLoop(name: "curl-test")
    let answer: Result<CurlResponse, CurlFailure> = await withCheckedContinuation { continuation in
      loop.execute {
        let client = CurlClient(loop: loop, configuration: CurlConfiguration(caFile: server.caFile))
        client.perform(CurlRequest(method: .get, url: "https://localhost:\(server.port)/arrivals?\(token)")) {
          client.close()
          continuation.resume(returning: $0)
        }
      }
    }
    loop.stop()
    return String(decoding: try answer.get().body, as: UTF8.self)
  }
}

// Tests of receipts, of access tokens that change, and of Expo's clock, over the network.

import HTTP2TestSupport
import Runtime
import Testing

@testable import Providers

/// A wall clock whose time the test chooses.
private struct StoppedWall: GatewayClock {
  let milliseconds: Int64
  func now() -> Instant { SystemClock().now() }
  func wallMilliseconds() -> Int64 { milliseconds }
}

@Suite(.timeLimit(.minutes(10))) struct ExpoCredentialsTests {
  private struct Bench {
    let server: HTTP2TestServer
    let provider: ExpoProvider
    let reports = ProviderReports()

    init(wall: Int64 = 0, handler: @escaping (HTTP2TestServer.Exchange) -> Void) async throws {
      server = try HTTP2TestServer(handler: handler)
      var configuration = ExpoConfiguration(
        url: "https://localhost:\(server.port)", accessToken: "old", caFile: TestCertificates.shared.caFile)
      (configuration.requestTimeout, configuration.answerTimeout) = (.seconds(60), .seconds(60))
      configuration.connections.waitLong()
      provider = ExpoProvider(
        configuration: configuration,
        loop: EventLoop(name: "expo-test"), clock: StoppedWall(milliseconds: wall))
      await provider.start { [reports] in reports.receive($0) }
    }

    func stop() async {
      await provider.shutDown(by: SystemClock().now() + .seconds(5))
      provider.loop.stop()
    }
  }

  /// Refuses the old access token, after the test was informed of the request.
  private static func refuseOld(_ exchange: HTTP2TestServer.Exchange, accepted: String) {
    if exchange.message.headers.text("authorization") == "Bearer new" {
      exchange.respond(200, body: accepted)
    } else {
      exchange.connection.note("old")
      exchange.connection.hold(exchange)
    }
  }

  /// Waits until the server holds a request with the old token, changes the token, and lets the server refuse.
  private func rotate(_ bench: Bench) async {
    while await bench.server.perform({ $0.held.isEmpty }) { await Task.yield() }
    await bench.provider.rotate(accessToken: "new")
    await bench.server.perform { server in
      for exchange in server.held { exchange.respond(401, body: #"{"errors":[{"code":"UNAUTHORIZED"}]}"#) }
      server.held = []
    }
  }

  @Test func `pushes refused for an access token that has changed meanwhile are sent again`() async throws {
    let bench = try await Bench { Self.refuseOld($0, accepted: #"{"data":[{"status":"ok","id":"T"}]}"#) }
    await bench.provider.send([.test(1, token: "ExpoPushToken[a]", body: #"{"title":"t"}"#)])
    await rotate(bench)
    let first = await bench.reports.results(1)
    #expect(first[1]?.outcome == .accepted(messageID: "T"))
    await bench.provider.send([.test(2, token: "ExpoPushToken[b]", body: #"{"title":"t"}"#)])
    let second = await bench.reports.results(2)
    #expect(second[2]?.outcome == .accepted(messageID: "T"))
    #expect(await bench.server.perform { $0.notes["old"] } == 1)
    await bench.stop()
  }

  @Test func `receipts refused for an access token that has changed meanwhile are requested again`() async throws {
    let bench = try await Bench { Self.refuseOld($0, accepted: #"{"data":{"T":{"status":"ok"}}}"#) }
    async let answer = bench.provider.receipts(of: ["T"])
    await rotate(bench)
    #expect(await answer == .receipts(["T": .accepted(messageID: nil)]))
    await bench.stop()
  }

  @Test func `a refused access token that has not changed is a credentials fault`() async throws {
    let bench = try await Bench { $0.respond(401, body: #"{"errors":[{"code":"UNAUTHORIZED"}]}"#) }
    await bench.provider.send([.test(1, token: "ExpoPushToken[a]", body: #"{"title":"t"}"#)])
    #expect(await bench.reports.results(1)[1]?.outcome == .unauthorized(reason: "UNAUTHORIZED"))
    #expect(await bench.provider.receipts(of: ["T"]) == .failed(.unauthorized(reason: "UNAUTHORIZED")))
    #expect(await bench.server.perform { $0.requestCount } == 2)
    await bench.stop()
  }

  @Test func `a thousand receipts are requested in one compressed request`() async throws {
    let bench = try await Bench { exchange in
      let headers = exchange.message.headers
      exchange.connection.note(headers.text(":path") ?? "")
      exchange.connection.note(headers.text("content-encoding") ?? "plain")
      exchange.connection.note(headers.text("authorization") ?? "none")
      exchange.respond(200, body: #"{"data":{"ticket-7":{"status":"ok"}}}"#)
    }
    #expect(
      await bench.provider.receipts(of: (0..<1000).map { "ticket-\($0)" })
        == .receipts(["ticket-7": .accepted(messageID: nil)]))
    #expect(await bench.provider.receipts(of: []) == .receipts([:]))
    #expect(
      await bench.server.perform { $0.notes }
        == ["/--/api/v2/push/getReceipts": 1, "gzip": 1, "Bearer old": 1])
    await bench.stop()
  }

  @Test func `requests for receipts end when the provider shuts down`() async throws {
    let bench = try await Bench { $0.connection.hold($0) }
    async let answer = bench.provider.receipts(of: ["T"])
    while await bench.server.perform({ $0.held.isEmpty }) { await Task.yield() }
    await bench.provider.shutDown(by: SystemClock().now() + .seconds(5))
    #expect(await answer == .failed(.unavailable(reason: "ClientClosed", after: nil)))
    #expect(await bench.provider.receipts(of: ["T"]) == .failed(.refused(reason: "ShuttingDown")))
    bench.provider.loop.stop()
  }

  @Test func `the difference of Expo's clock is reported at the first answer, and then once a minute`() async throws {
    // Sun, 06 Nov 1994 08:49:37 GMT is 784111777; our clock is a minute behind.
    let bench = try await Bench(wall: 784_111_717_000) { exchange in
      exchange.respond(200, [("date", "Sun, 06 Nov 1994 08:49:37 GMT")], body: #"{"data":[{"status":"ok","id":"T"}]}"#)
    }
    for tag in 1...3 {
      await bench.provider.send([.test(tag, token: "ExpoPushToken[\(tag)]", body: #"{"title":"t"}"#)])
      _ = await bench.reports.results(tag)
    }
    #expect(bench.reports.clockSkews == [.milliseconds(60_500)])
    await bench.stop()
  }
}

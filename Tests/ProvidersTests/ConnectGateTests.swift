// Tests of how often a connection is tried while none can be made.

import Foundation
import PushModel
import Runtime
import TestTime
import Testing

@testable import Providers

@Suite("Connect gate", .timeLimit(.minutes(10))) struct ConnectGateTests {
  private let start = Instant(nanoseconds: 1_000_000_000_000)

  @Test
  func `the waits double from 250 ms to 2 s, with one request at a time until one was sent`() {
    var gate = ConnectGate(backoff: ExpoConfiguration().backoff, seed: 1)
    var now = start
    var waits: [Int64] = []
    #expect(gate.admits(beside: 5, now))
    for _ in 0..<8 {
      gate.didFail(begunAt: now)
      gate.didFail(begunAt: now)  // requests that were started together and failed together
      #expect(!gate.admits(beside: 0, gate.opensAt - .milliseconds(1)))
      waits.append((gate.opensAt - now).milliseconds)
      now = gate.opensAt
      #expect(gate.admits(beside: 0, now))
      #expect(!gate.admits(beside: 1, now))
    }
    let bounds: [ClosedRange<Int64>] = [
      125...250, 250...500, 500...1000, 1000...2000, 1000...2000, 1000...2000, 1000...2000, 1000...2000,
    ]
    for (wait, bound) in zip(waits, bounds) { #expect(bound.contains(wait)) }
    gate.didConnect()
    #expect(gate.admits(beside: 5, now))
  }

  @Test
  func `after an attempt that took longer than the wait, the next one follows at once`() {
    var gate = ConnectGate(seed: 1)
    gate.didFail(begunAt: start)
    #expect(gate.admits(beside: 0, start + .seconds(5)))
  }

  @Test
  func `an Expo endpoint that refuses connections is tried with growing pauses, and its lane has no room meanwhile`()
    async throws
  {
    // Port 1 has no listener.
    let provider = ExpoProvider(
      configuration: ExpoConfiguration(url: "https://127.0.0.1:1"), loop: .paced("expo-test"))
    let reports = ProviderReports()
    await provider.start { reports.receive($0) }
    let end = provider.loop.now + .seconds(3)
    var tag: UInt64 = 0
    // Each failed request is sent again at once, as a hundred simultaneous calls would be.
    try await eventually("three seconds of the provider's clock", every: .milliseconds(10)) {
      while Int(tag) < reports.results.count + 5 {
        await provider.send([request(tag)])
        tag += 1
      }
      return provider.loop.now >= end
    }
    // A test that continues late may see later attempts.
    let tries = Set(reports.results.map(\.answeredAt).filter { $0 < end }.map(\.nanoseconds)).count
    #expect(tries >= 2)
    #expect(tries <= 6, "0.125 + 0.25 + 0.5 + 1 + 2 s are more than 3 s")
    #expect(reports.results.allSatisfy { $0.outcome == .unavailable(reason: "NotConnected", after: nil) })
    #expect(reports.capacities.contains(0))
    #expect(reports.capacities.contains(1))
    await provider.shutDown(by: provider.loop.now + .seconds(1))
    provider.loop.stop()
  }

  private func request(_ tag: UInt64) -> PushRequest {
    PushRequest(
      tag: tag, deliveryID: DeliveryID(high: 0, low: 0), kind: .invite, environment: .production,
      token: Array("ExponentPushToken[\(tag)]".utf8), body: Array("{}".utf8), collapseID: nil,
      deadline: SystemClock().now() + .seconds(600), expiresAtMilliseconds: SystemClock().wallMilliseconds() + 600_000)
  }
}

// Calls of apps with proxies, from SQL to the simulators. Every connection to a simulator must be a tunnel of a proxy.

import Foundation
import HTTP2TestSupport
import Simulators
import TestSupport
import TestTime
import Testing

@testable import Settings
@testable import HTTPSurface

@Suite("Proxies end to end", .timeLimit(.minutes(10))) struct ProxyEndToEndTests {
  private static func connections(_ simulators: SimulatorSuite) async -> Int {
    var count = 0
    for server in [simulators.apnsProduction, simulators.apnsSandbox, simulators.fcm, simulators.expo] {
      count += await server.counters.connections
    }
    return count
  }

  private static func enqueue(_ callID: String, _ app: String, _ harness: GatewayHarness) async throws {
    _ = try await harness.database.value(
      """
      select deliveries from push.enqueue_call(
        '\(GatewayHarness.baseCallData(callID))', '\(GatewayHarness.residents)', '\(app)')
      """)
  }

  @Test("two apps with proxies of their own ring over all three providers, and every connection uses the proxies")
  func twoApps() async throws {
    let (first, second) = (try TinyProxy(login: "gateway word"), try TinyProxy())
    let file = FileManager.default.temporaryDirectory.appending(path: "proxy-\(UUID())").path()
    try SecretFixture.write("gateway:word\n", to: file)
    defer { try? FileManager.default.removeItem(atPath: file) }
    try await GatewayHarness.with { settings in
      settings.apps[0].proxy = .init(host: "127.0.0.1", port: first.port, credentialsFile: file)
      var other = settings.apps[0]
      other.name = "other"
      other.proxy = .init(host: "localhost", port: second.port)
      settings.apps.append(other)
    } _: { harness in
      try await Self.enqueue("first", "porteiro", harness)
      try await Self.enqueue("second", "other", harness)
      try await harness.settled()
      try await harness.expectOutcomes("apns delivered 2,expo delivered 2,fcm delivered 2")
      let endpoints = harness.simulators.endpoints
      let urls = [endpoints.apnsProduction, endpoints.fcm, endpoints.expo]
      for (name, relay) in [("first", first), ("second", second)] {
        for url in urls {
          let target = url.replacing("https://", with: "")
          #expect(relay.targets.contains(target), "\(name) has no tunnel to \(target): \(relay.targets)")
        }
      }
      try await eventually("every connection is a tunnel") {
        await Self.connections(harness.simulators) == first.targets.count + second.targets.count
      }
    }
  }

  @Test("apps with the same service account fetch tokens through their own proxies")
  func tokenSourcesApart() async throws {
    // The first app's token requests fail. If the second app shared them, it would never get a token.
    let (closed, open) = (try HostileProxy("HTTP/1.1 403 Forbidden\r\n\r\n"), try TinyProxy())
    try await GatewayHarness.with { settings in
      var other = settings.apps[0]
      other.name = "other"
      (other.apns, other.expo) = (nil, nil)
      other.proxy = .init(host: "127.0.0.1", port: closed.port)
      settings.apps[0].proxy = .init(host: "127.0.0.1", port: open.port)
      settings.apps.insert(other, at: 0)
    } _: { harness in
      try await Self.enqueue("call", "porteiro", harness)
      try await harness.settled()
      try await harness.expectOutcomes("apns delivered 1,expo delivered 1,fcm delivered 1")
      try await eventually("every connection is a tunnel") {
        await Self.connections(harness.simulators) == open.targets.count
      }
    }
  }
}

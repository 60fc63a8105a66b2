// Shared by the tests of web push: a provider, a browser, and push services that the test controls.

import Foundation
import HTTP2TestSupport
import Logging
import PushModel
import Runtime
import Simulators
import Synchronization
import TestTime

@testable import Providers

/// The keys of all tests' subscriptions.
enum WebPushFixture {
  static let browser = WebPushBrowser.generate()!
  static let key = try! SigningKey.generate(for: .es256)
  static let credentials = try! WebPushCredentials(key: key, subject: "mailto:ops@example.com")

  /// A subscription at a port of 127.0.0.1.
  static func token(_ port: UInt16, _ name: String = "a") -> String {
    browser.token(endpoint: "https://127.0.0.1:\(port)/push/\(name)")
  }
}

extension ProviderBench where Provider == WebPushProvider {
  /// For push services at ports of 127.0.0.1. Requests without another token go to the first.
  ///
  /// - Parameters:
  ///   - peers: the loops on the way of a request.
  ///   - hasPermit: whether its requests have a permit, which has lapsed.
  static func webPush(
    _ ports: UInt16..., caFile: String = TestCertificates.shared.caFile, peers: [EventLoop] = [],
    logger: Logger = silentLogger,
    credentials: WebPushCredentials = WebPushFixture.credentials, clock: any GatewayClock = SystemClock(),
    hasPermit: Bool = false,
    _ change: (inout WebPushConfiguration) -> Void = { _ in }
  ) throws -> Self {
    var configuration = WebPushConfiguration(
      tls: try TLSContext.client(caFile: caFile),
      allowedOrigins: try WebPushAllowedOrigins(ports.map { "127.0.0.1:\($0)" }))
    configuration.pool.waitTimeout = .seconds(30)
    change(&configuration)
    let loop = EventLoop.paced("webpush-test", with: peers)
    let permit = hasPermit ? SendPermit(on: loop) : nil
    return Self(
      provider: WebPushProvider(
        configuration, credentials: credentials, loop: loop, logger: logger,
        permits: permit.map { SendPermits([$0]) }, clock: clock),
      permit: permit, token: WebPushFixture.token(ports.first ?? 9))
  }

  /// Sends one push to a token and waits for its outcome; all earlier pushes must have theirs.
  func push(_ tag: Int, to token: String) async -> PushResult {
    let count = reports.results.count + 1
    await provider.send([request(tag, token: token)])
    return await reports.results(count)[UInt64(tag)]!
  }
}

/// The clock of a machine whose time is set.
final class SetClock: GatewayClock {
  private let offset = Mutex(Int64(0))

  func set(back time: Nanoseconds) { offset.withLock { $0 -= time.milliseconds } }

  func now() -> Instant { SystemClock().now() }
  func wallMilliseconds() -> Int64 { offset.withLock { SystemClock().wallMilliseconds() + $0 } }
}

/// Keeps every line with its metadata, at every level.
final class KeptLog: LogHandler, @unchecked Sendable {
  private let lines = Mutex<[String]>([])
  var metadata: Logger.Metadata = [:]
  var logLevel: Logger.Level = .trace

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  func log(event: LogEvent) {
    lines.withLock { $0.append("\(event.level) \(event.message) \(event.metadata ?? [:])") }
  }

  var text: String { lines.withLock { $0.joined(separator: "\n") } }
  var logger: Logger { Logger(label: "test") { _ in self } }
}

/// The JSON of a browser's `PushSubscription`.
struct BrowserSubscription: Decodable {
  struct Keys: Decodable {
    var auth: String
    var p256dh: String
  }

  var endpoint: String
  var keys: Keys
}

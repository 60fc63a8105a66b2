// Tests of the measured difference between the provider's clock and ours.

import Logging
import Runtime
import Simulators
import Synchronization
import Testing

@testable import Providers

/// Collects the warnings about the difference of the clocks.
private struct WarningCatcher: LogHandler {
  final class Lines: Sendable {
    private let lines = Mutex<[Logger.Metadata]>([])
    var all: [Logger.Metadata] { lines.withLock { $0 } }
    func append(_ metadata: Logger.Metadata) { lines.withLock { $0.append(metadata) } }
  }

  let lines: Lines
  var metadata: Logger.Metadata = [:]
  var logLevel = Logger.Level.warning

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  func log(event: LogEvent) {
    if let metadata = event.metadata, metadata["skew_seconds"] != nil { lines.append(metadata) }
  }
}

@Suite("Clock skew", .timeLimit(.minutes(10))) struct ClockSkewTests {
  @Test(arguments: [-3600, 0, 30] as [Int64])
  func `the provider's date is compared with our clock at the first answer, and one warning is logged above 5 s`(
    offset: Int64
  ) async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.clockOffset = offset
    let suite = try await SimulatorSuite.start(configuration)
    let lines = WarningCatcher.Lines()
    let bench = try ProviderBench.apns(
      suite, tokens: suite.material.apnsTokens(), logger: Logger(label: "test") { _ in WarningCatcher(lines: lines) })
    await bench.start()
    for tag in 0..<20 { #expect(await bench.push(tag).outcome.isAccepted) }
    #expect(bench.reports.clockSkews.count == 1, "once a connection, then once a minute")
    let skew = try #require(bench.reports.clockSkews.first)
    // The answer may have waited for a busy machine: then the provider's clock seems to be behind by so much.
    #expect(skew.seconds - Double(offset) < 1.5 && skew.seconds - Double(offset) > -30)
    let warnings = abs(skew.seconds) > 5 ? 1 : 0
    #expect(lines.all.count == warnings)
    #expect(lines.all.allSatisfy { $0["skew_seconds"]?.description == "\(skew.seconds)" })

    // A new connection measures again; there is no second warning for the same difference.
    await suite.apnsProduction.goAway()
    while await bench.push(bench.reports.results.count).connection == 0 {}
    #expect(bench.reports.clockSkews.count == 2)
    let skews = bench.reports.clockSkews
    let isTheSame = abs(skews[1].seconds - skews[0].seconds) < 5 && abs(skews[1].seconds) > 5
    if offset == 0 ? warnings == 0 && abs(skews[1].seconds) < 5 : isTheSame { #expect(lines.all.count == warnings) }
    await bench.stop()
    await suite.stop()
  }

  private let date = Array("Sun, 06 Nov 1994 08:49:37 GMT".utf8)
  private let dateMilliseconds: Int64 = 784_111_777_000

  @Test
  func `the date is compared once a minute, and at the first answer of each connection`() {
    var meter = ClockSkewMeter()
    var now = Instant(nanoseconds: 0)
    func measure(_ connection: Int) -> Nanoseconds? {
      meter.measure(date[...], on: connection, now: now, wallMilliseconds: dateMilliseconds)
    }
    #expect(meter.isDue(0, sentAt: now))
    #expect(measure(0) == .milliseconds(500))
    #expect(!meter.isDue(0, sentAt: now))
    #expect(meter.isDue(1, sentAt: now))
    _ = measure(1)
    now = now + .seconds(59)
    #expect(!meter.isDue(0, sentAt: now) && !meter.isDue(1, sentAt: now))
    now = now + .seconds(1)
    #expect(meter.isDue(0, sentAt: now))
  }

  @Test(arguments: [nil, "", "yesterday", "Sun, 06 Nov"])
  func `a missing or unreadable date measures nothing`(text: String?) {
    var meter = ClockSkewMeter()
    let bytes = text.map { Array($0.utf8)[...] }
    #expect(meter.measure(bytes, on: 0, now: Instant(nanoseconds: 0), wallMilliseconds: 0) == nil)
  }

  @Test
  func `a large difference is logged once, after each change, and once an hour while it lasts`() {
    var meter = ClockSkewMeter()
    var now = Instant(nanoseconds: 0)
    func warns(_ skew: Nanoseconds) -> Bool { meter.warns(of: skew, now: now) }
    #expect(!warns(.seconds(5)))
    #expect(warns(.seconds(-6)))
    #expect(!warns(.seconds(-7)))
    #expect(warns(.seconds(6)))
    now = now + .seconds(3599)
    #expect(!warns(.seconds(6)))
    now = now + .seconds(1)
    #expect(warns(.seconds(6)))
    #expect(!warns(.zero))
    #expect(warns(.seconds(6)))
  }
}

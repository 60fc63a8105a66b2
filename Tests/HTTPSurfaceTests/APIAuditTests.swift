// The log lines about requests, and their limits during a flood.

import HTTPSurfaceTestSupport
import Logging
import Runtime
import Synchronization
import TestTime
import Testing

@testable import HTTPSurface
@testable import Settings

struct APIAuditTests {
  private final class Lines: Sendable {
    let all = Mutex<[String]>([])
    var logger: Logger { Logger(label: "test") { [self] _ in Handler(lines: self) } }

    /// Removes and returns the lines.
    func drain() -> [String] {
      all.withLock { all in
        defer { all = [] }
        return all
      }
    }
  }

  private struct Handler: LogHandler {
    let lines: Lines
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace
    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }
    func log(event: LogEvent) {
      let metadata = (event.metadata ?? [:]).sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
      lines.all.withLock { $0.append("\(event.level) \(event.message): \(metadata.joined(separator: " "))") }
    }
  }

  private let lines = Lines()
  private let clock = ManualClock()
  private let audit: APIAudit
  private static let peer = IPAddress("192.0.2.7")!

  init() {
    audit = APIAudit(logger: lines.logger, clock: clock)
  }

  private func refuse(_ reason: APIRefusal.Reason, _ status: Int, key: Int32? = nil, from peer: IPAddress = peer) {
    audit.note(.init(operation: .enqueueCall, status: status, keyID: key, peer: peer, refusal: reason))
  }

  @Test func `a request that changed something is logged at once; a request that only read is not logged`() {
    audit.note(.init(operation: .enqueueCall, status: 202, keyID: 3, peer: Self.peer, callID: "c1"))
    audit.note(.init(operation: .dropDevice, status: 204, keyID: 4, peer: IPAddress("2001:db8::1")!))
    audit.note(.init(operation: .readCall, status: 200, keyID: 3, peer: Self.peer, callID: "c1"))
    #expect(
      lines.drain() == [
        "info A key was used: call_id=c1 key_id=3 operation=enqueueCall peer=192.0.2.7 status=202",
        "info A key was used: key_id=4 operation=dropDevice peer=2001:db8::1 status=204",
      ])
  }

  @Test func `refusals and failures are logged as sums by peer, key and reason`() {
    for _ in 0..<500 { refuse(.wrongSecret, 401, key: 3) }
    for index in 0..<9 as Range<UInt64> {
      refuse(.unknownKey, 401, from: IPAddress(high: 0x2001_0DB8_0000_0001, low: index, isIPv6: true))
    }
    refuse(.address, 403, key: 3)
    audit.note(.init(operation: .endCall, status: 404, keyID: 3, peer: Self.peer))
    audit.note(.init(status: 404, peer: Self.peer))
    #expect(lines.drain() == [])
    audit.flush()
    #expect(
      lines.drain() == [
        "notice Requests were refused: count=500 key_id=3 operation=enqueueCall peer=192.0.2.7 reason=wrong_secret status=401",
        "notice Requests were refused: count=9 operation=enqueueCall peer=2001:db8:0:1::/64 reason=unknown_key status=401",
        "info Requests failed: count=1 peer=192.0.2.7 status=404",
        "notice Requests were refused: count=1 key_id=3 operation=enqueueCall peer=192.0.2.7 reason=address status=403",
        "info Requests failed: count=1 key_id=3 operation=endCall peer=192.0.2.7 status=404",
      ])
    audit.flush()
    #expect(lines.drain() == [])
  }

  @Test func `a flood from any number of addresses causes few lines a second, hides no key, and is counted`() {
    var written: [String] = []
    var guesses = 0
    for second in 0..<3_600 {
      for index in 0..<200 {
        guesses += 1
        refuse(.unknownKey, 401, from: IPAddress(high: 0, low: UInt64(second * 200 + index), isIPv6: false))
      }
      if second == 1_800 { refuse(.address, 403, key: 9) }
      audit.flush()
      if second == 1_800 { #expect(lines.all.withLock { $0.last?.contains("key_id=9") } == true) }
      written += lines.drain()
      clock.advance(.seconds(1))
    }
    #expect(written.count < 60 + 2 * 3_600 + 2)
    for _ in 0..<2 {
      clock.advance(.seconds(60))
      audit.flush()
      written += lines.drain()
    }
    let counted = written.compactMap { $0.firstMatch(of: /count=(\d+)/).flatMap { Int($0.1) } }.reduce(0, +)
    #expect(counted == guesses + 1)
  }

  @Test func `metrics count by operation, status and reason, and what clients send makes no series`() throws {
    let counters = APICounters()
    for status in [202, 202, 401, 429, 418, 599] {
      counters.note(.enqueueCall, status: status, status == 401 ? .expired : nil)
    }
    counters.note(.pushGorush, status: 200, nil, refusedTokens: 3)
    counters.note(nil, status: 404, nil)
    counters.note(nil, status: 405, nil)
    var writer = ExpositionWriter(.prometheus)
    writer.write(counters.snapshot)
    let samples = try MetricsExposition(writer.finish(), false).samples
    #expect(
      samples.filter { $0.value > 0 } == [
        #"push_gateway_api_requests_total{operation="enqueueCall",status="202"}"#: 2,
        #"push_gateway_api_requests_total{operation="enqueueCall",status="401"}"#: 1,
        #"push_gateway_api_requests_total{operation="enqueueCall",status="429"}"#: 1,
        #"push_gateway_api_requests_total{operation="enqueueCall",status="other"}"#: 2,
        #"push_gateway_api_requests_total{operation="pushGorush",status="200"}"#: 1,
        #"push_gateway_api_refused_tokens_total{operation="pushGorush"}"#: 3,
        #"push_gateway_api_requests_total{operation="none",status="404"}"#: 1,
        #"push_gateway_api_requests_total{operation="none",status="405"}"#: 1,
        #"push_gateway_api_refusals_total{reason="expired"}"#: 1,
      ])
    #expect(samples.count < 160)
  }
}

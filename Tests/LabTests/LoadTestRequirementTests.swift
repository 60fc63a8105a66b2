// The conditions of a run: reading them, and what is measured.

import Foundation
import Testing

@testable import Lab

@Suite struct LoadTestRequirementTests {
  @Test func `conditions are read with their units`() throws {
    let list = try LoadRequirement.list(
      "failed<0.1%, p99<=500ms,delivered>99.9%,settle.p99.9<2s,refused>=3,max<1m,enqueue.mean<5ms")
    #expect(
      list.map(\.metric) == [
        .count(.failed), .latency(.request, .percentile(99)), .count(.delivered), .latency(.settle, .percentile(99.9)),
        .count(.refused),
        .latency(.request, .max), .latency(.enqueue, .mean),
      ])
    #expect(list.map(\.comparison) == [.below, .atMost, .above, .below, .atLeast, .below, .below])
    #expect(
      list.map(\.limit) == [
        .share(0.1), .duration(500_000), .share(99.9), .duration(2_000_000), .count(3), .duration(60_000_000),
        .duration(5_000),
      ])
  }

  @Test(arguments: [
    ("", "is not of the form metric<limit"), ("p99", "is not of the form metric<limit"),
    ("p99<500", "a duration with its unit"),
    ("p99<1%", "a duration with its unit"), ("failed<5ms", "a whole number, or a percentage"),
    ("failed<101%", "from 0% to 100%"),
    ("failed<-1", "a whole number"), ("failed<0.5", "a whole number"), ("lost<5", "there is no metric lost"),
    ("p0<1s", "there is no metric p0"), ("p101<1s", "there is no metric p101"),
    ("ring.p99<1s", "there is no metric ring.p99"),
    ("failed<1%,,p99<1s", "is not of the form"), ("failed=0", "is not of the form"),
  ])
  func `a condition that makes no sense is refused with the reason`(text: String, message: String) throws {
    let error = try #require(throws: LoadOptionError.self) { try LoadRequirement.list(text) }
    #expect(error.description.contains(message), "\(error)")
  }

  /// A thousand deliveries whose requests take 1 ms, 2 ms … 1,000 ms; the last `failed` failed.
  private static func ledger(failed: Int = 0) throws -> LoadLedger {
    let start: Int64 = 1_790_000_000_000_000
    var ledger = LoadLedger(hasLog: true)
    ledger.enter(try LoadTestLoadTests.shape(devices: 1_000).call(0), scheduledAt: start)
    ledger.commit(0..<1_000, at: start)
    for delivery in 0..<1_000 - failed { ledger.receive(delivery, at: start + Int64(delivery + 1) * 1_000) }
    ledger.settle(
      (0..<1_000).map {
        .init(
          delivery: $0, outcome: $0 < 1_000 - failed ? .delivered : .dead, sentAt: start, answeredAt: start,
          finishedAt: start,
          deadlineAt: start + 60_000_000, attempts: 1, refusals: 0)
      })
    return ledger
  }

  @Test(arguments: [
    ("p50<=501ms", true), ("p50<499ms", false), ("p99<=991ms", true), ("p99<989ms", false), ("p100>=1s", true),
    ("max<=1s", true),
    ("max<1s", false), ("mean<502ms", true), ("mean<499ms", false), ("enqueue.p99<=0ms", true),
  ])
  func `percentiles are those of the deliveries`(condition: String, isMet: Bool) throws {
    let verdict = LoadVerdict(try Self.ledger(), requirements: try LoadRequirement.list(condition))
    #expect(verdict.requirements.map(\.isMet) == [isMet], "\(verdict.requirements)")
    #expect(verdict.isGood == isMet)
  }

  @Test(arguments: [
    ("failed<0.2%", true), ("failed<0.1%", false), ("failed<=0.1%", true), ("failed<2", true), ("failed<1", false),
    ("delivered>=99.9%", true), ("delivered>99.9%", false), ("delivered>998", true), ("repeated<1", true),
  ])
  func `a share is exact at its limit`(condition: String, isMet: Bool) throws {
    let verdict = LoadVerdict(try Self.ledger(failed: 1), requirements: try LoadRequirement.list(condition))
    #expect(verdict.requirements.map(\.isMet) == [isMet], "\(verdict.requirements)")
  }

  @Test func `each condition is printed with what was measured`() throws {
    let verdict = LoadVerdict(
      try Self.ledger(failed: 1), requirements: try LoadRequirement.list("failed<0.1%,max<2s,refused<1%"))
    #expect(
      verdict.requirements.map(\.line) == [
        "NOT MET: failed<0.1% (measured: 0.1%, 1 of 1000)", "met: max<2s (measured: 999.0 ms)",
        "NOT MET: refused<1% (measured: nothing)",
      ])
    #expect(verdict.reasons == ["failed<0.1% is not met", "refused<1% is not met"])
  }

  @Test func `what nobody measured is not met`() throws {
    var ledger = LoadLedger(hasLog: false)
    ledger.enter(try LoadTestLoadTests.shape().call(0), scheduledAt: 1)
    let verdict = LoadVerdict(ledger, requirements: try LoadRequirement.list("p99<1h,failed<1%,failed<1"))
    #expect(verdict.requirements.map(\.isMet) == [false, false, true] && verdict.result == .incomplete)
  }
}

// Tests of the faults of the soak tests: stalls derived from the token, and GOAWAYs that leave streams unprocessed.

import Foundation
import Runtime
import Testing

@testable import Simulators

@Suite("Stalls and cut-offs")
struct StallAndCutOffTests {
  @Test("a stall is the same for every request of a token, and spread over all tokens up to the longest")
  func stalls() throws {
    let longest = Nanoseconds.seconds(120)
    var engine = FaultEngine(
      FaultPlan([FaultRule(provider: .fcm, fault: Fault(.accept, stallMax: longest))]), for: .fcm)
    var delays: [Int64] = []
    for number in 0..<1_000 {
      let token = Array("token-\(number)".utf8)[...]
      let fault = engine.fault(for: token)
      let delay = try #require(fault).delay
      let again = engine.fault(for: token)
      #expect(again == fault)
      #expect(delay >= .zero && delay < longest)
      delays.append(delay.milliseconds)
    }
    for quarter in 0..<4 {
      let range = Int64(quarter) * 30_000..<Int64(quarter + 1) * 30_000
      #expect((150...350).contains(delays.count { range.contains($0) }), "quarter \(quarter)")
    }
  }

  @Test("a request that is cut off is not accepted, by any provider")
  func cutOff() {
    let plan = FaultPlan([
      FaultRule(provider: .apns, fault: Fault(.cutOff)), FaultRule(provider: .fcm, fault: Fault(.cutOff)),
    ])
    var apns = APNsBench(faults: plan)
    #expect(apns.send().delivery == .cutOff)
    #expect(apns.journal.counters.refused == ["cutoff": 1])
    var fcm = FCMBench(faults: plan)
    #expect(fcm.send().delivery == .cutOff)
    #expect(fcm.journal.accepted.isEmpty)
  }

  @Test("a deafened connection answers no request from then on; other connections do")
  func deafened() async throws {
    let bench = try await WireBench {
      $0.faults = FaultPlan([FaultRule(provider: .apns, fault: Fault(.deafen), count: 1)])
    }
    let body = "\(bench.suite.material.directory)/body"
    try Data(APNsBench.payload.utf8).write(to: URL(fileURLWithPath: body))
    // It gives up after ten seconds.
    let twice = ["-v", "-t", "10", "-m", "2", "-d", body] + bench.apnsHeaders.flatMap { ["-H", $0] }
    let deaf = String(decoding: try run("/usr/bin/nghttp", twice + [bench.apnsURL()]), as: UTF8.self)
    #expect(deaf.split(separator: "send HEADERS frame").count == 3)
    #expect(!deaf.contains(":status: "))
    #expect(try bench.curl(bench.apnsURL(), bench.apnsHeaders, body: APNsBench.payload).status == 200)
    try await bench.finish()
  }
}

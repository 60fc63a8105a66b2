// Tests of fault plans: reading a file, and matching requests.

import Foundation
import Runtime
import Testing

@testable import Simulators

@Suite("Fault plan")
struct FaultPlanTests {
  private func plan(_ json: String) throws -> FaultPlan { try FaultPlan(json: Array(json.utf8)) }
  private func token(_ text: String) -> ArraySlice<UInt8> { Array(text.utf8)[...] }

  @Test("every key of a rule is read")
  func reads() throws {
    let plan = try plan(
      #"""
      [{"provider":"apns","environment":"sandbox","token_prefix":"ab","status":503,"reason":"Shutdown","body":{"reason":"x"},
        "delay_ms":20,"share":0.25,"count":3,"after":4,"retry_after":5,"timestamp":6},
       {"provider":"fcm","action":"hang"}, {"provider":"expo","receipt":"MessageTooBig"},
       {"provider":"apns","goaway_every":4}]
      """#)
    #expect(
      plan.rules[0]
        == FaultRule(
          provider: .apns, environment: "sandbox", tokenPrefix: "ab",
          fault: Fault(
            .answer(status: 503, reason: "Shutdown", body: #"{"reason":"x"}"#), delay: .milliseconds(20), retryAfter: 5,
            timestamp: 6),
          share: 0.25, after: 4, count: 3))
    #expect(plan.rules[1].fault == Fault(.hang))
    #expect(plan.rules[2].fault == Fault(.receipt("MessageTooBig")))
    #expect(plan.rules[3].fault == Fault(.accept, goesAway: true))
    #expect(plan.rules[3].share == 0.25)
  }

  @Test(
    "an error names the rule and the key",
    arguments: [
      (#"{}"#, "the fault plan must be a JSON array of rules"),
      (#"[{}]"#, "rule 1 of the fault plan: needs a provider: apns, fcm, oauth, expo or webpush"),
      (
        #"[{"provider":"apns"},{"provider":"gcm"}]"#,
        "rule 2 of the fault plan: provider must be apns, fcm, oauth, expo or webpush"
      ),
      (#"[{"provider":"apns","sahre":1}]"#, "rule 1 of the fault plan: knows no key “sahre”"),
      (#"[{"provider":"apns","share":2}]"#, "rule 1 of the fault plan: share must be a number from 0 to 1"),
      (
        #"[{"provider":"apns","status":"503"}]"#,
        "rule 1 of the fault plan: status must be a whole number from 100 to 599"
      ),
      (#"[{"provider":"apns","body":"x"}]"#, "rule 1 of the fault plan: a body needs a status or a reason"),
      (#"[1]"#, "rule 1 of the fault plan: must be an object"),
    ])
  func refuses(_ json: String, _ description: String) {
    #expect(throws: FaultPlanError(description: description)) { try plan(json) }
  }

  @Test("a share is spread evenly; it starts after `after` requests and ends after `count` faults")
  func share() {
    let rule = FaultRule(provider: .apns, fault: Fault(.hang), share: 0.5, after: 2, count: 3)
    var engine = FaultEngine(FaultPlan([rule]), for: .apns)
    let due = (0..<14).map { _ in engine.fault(for: token("ab")) != nil }
    #expect(due.enumerated().filter(\.element).map(\.offset) == [3, 5, 7])
  }

  @Test("a tenth of ten thousand is a thousand, exactly")
  func manyShares() {
    let rule = FaultRule(provider: .apns, fault: Fault(.hang), share: 0.1)
    var engine = FaultEngine(FaultPlan([rule]), for: .apns)
    #expect((0..<10_000).count { _ in engine.fault(for: token("ab")) != nil } == 1_000)
  }

  @Test("rules apply to their provider, environment and prefix only; the first that is due wins")
  func matches() {
    let plan = FaultPlan([
      FaultRule(provider: .fcm, fault: Fault(.hang)),
      FaultRule(provider: .apns, environment: "sandbox", fault: Fault(.close)),
      FaultRule(provider: .apns, tokenPrefix: "ab", fault: Fault(.reset), count: 1),
      FaultRule(provider: .apns, tokenPrefix: "a", fault: Fault(.refuse)),
    ])
    var production = FaultEngine(plan, for: .apns, environment: "production")
    #expect(production.fault(for: token("abc"))?.effect == .reset)
    #expect(production.fault(for: token("abc"))?.effect == .refuse)
    #expect(production.fault(for: token("bcd")) == nil)
    var sandbox = FaultEngine(plan, for: .apns, environment: "sandbox")
    #expect(sandbox.fault(for: token("bcd"))?.effect == .close)
  }

  @Test("a rule answers with its status and body, and one with status 200 counts as accepted")
  func answers() throws {
    var bench = APNsBench(
      faults: try plan(
        #"[{"provider":"apns","status":503,"body":"busy","count":1},{"provider":"apns","status":200,"body":"?","count":1}]"#
      ))
    let busy = bench.send()
    #expect(busy.status == 503)
    #expect(String(decoding: busy.body, as: UTF8.self) == "busy")
    let odd = bench.send()
    #expect(odd.status == 200)
    #expect(String(decoding: odd.body, as: UTF8.self) == "?")
    #expect(bench.journal.counters.accepted == 1)
    #expect(bench.send().body.isEmpty)
  }

  @Test("a GOAWAY follows every n-th accepted push")
  func goAway() throws {
    var bench = APNsBench(faults: try plan(#"[{"provider":"apns","goaway_every":3}]"#))
    let reasons = (0..<6).map { _ in bench.send().goAwayReason }
    #expect(reasons.map { $0 != nil } == [false, false, true, false, false, true])
    #expect(bench.journal.counters.accepted == 6)
  }

  @Test("every line of the log is one JSON object, whatever the payload's white space")
  func lines() throws {
    var bench = APNsBench()
    _ = bench.send(body: "{\n\t\"a\": \"\\n\u{e9}\\\"\",\r\n \"b\": [1,\n2]\n}")
    _ = bench.send(["apns-topic": nil])
    let lines = bench.journal.pendingLines.split(separator: 0x0A).map { object(Array($0)) }
    #expect(lines.count == 2)
    #expect(lines[0]["at"] as? Double == Double(Fixture.now) * 1000)
    #expect(lines[0]["outcome"] as? String == "accepted")
    #expect((lines[0]["payload"] as? [String: Any])?["a"] as? String == "\né\"")
    #expect((lines[0]["headers"] as? [String: String])?["apns-priority"] == "10")
    #expect(lines[1]["outcome"] as? String == "refused")
    #expect(lines[1]["reason"] as? String == "MissingTopic")
  }

  @Test("a log's time has microseconds as its fraction")
  func time() {
    var bench = ExpoBench()
    var memory = ConnectionMemory()
    let request = SimulatedRequest(
      [(":method", "POST"), (":path", ExpoSimulator.sendPath), ("content-type", "application/json")],
      body: ExpoBench.message())
    _ = bench.simulator.respond(to: request, on: &memory, at: 1_800_000_000_123_045, journal: &bench.journal)
    #expect(String(decoding: bench.journal.pendingLines, as: UTF8.self).hasPrefix(#"{"at":1800000000123.045,"#))
  }
}

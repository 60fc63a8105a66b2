// What a load test says: text, JSON, and a page that shows nothing but what it should.

import Foundation
import Runtime
import Testing

@testable import Lab

@Suite struct LoadTestReportTests {
  private static let start: Int64 = 1_790_000_000_000_000

  /// Fifty calls, one every 100 ms, each request 1 ms after the one before took; the last call's deliveries are lost.
  private static func report(app: String = "porteiro", faults: String = "") throws -> LoadReport {
    var shape = try LoadTestLoadTests.shape()
    shape.apps = [app]
    var ledger = LoadLedger(hasLog: true)
    for number in 0..<50 { ledger.enter(shape.call(number), scheduledAt: start + Int64(number) * 100_000) }
    for number in 0..<50 {
      let due = start + Int64(number) * 100_000
      let range = number * 3..<number * 3 + 3
      ledger.commit(range, at: due + 500)
      if number == 49 { continue }
      for delivery in range { ledger.receive(delivery, at: due + 1_000 * Int64(number + 1)) }
      ledger.settle(
        range.map {
          .init(
            delivery: $0, outcome: .delivered, sentAt: due + 700, answeredAt: due + 70_000, finishedAt: due + 80_000,
            deadlineAt: due + 60_000_000, attempts: 1, refusals: 0)
        })
    }
    return LoadReport(
      ledger, shape: shape, arrivals: .open(ArrivalSchedule(rate: 10, duration: .seconds(5), seed: 1)),
      mix: "apns=1,fcm=1,expo=1", faults: faults, clockOffset: 0)
  }

  @Test func `the JSON document has the verdict, the latencies and the course of the run`() throws {
    let json = try JSONSerialization.jsonObject(with: Data(Self.report().json)) as? [String: Any]
    let verdict = try #require(json?["verdict"] as? [String: Any])
    #expect(verdict["good"] as? Bool == false && verdict["lost"] as? Int == 3 && verdict["settled"] as? Int == 147)
    let latencies = try #require(json?["latency_us"] as? [String: [String: [String: Int]]])
    #expect(Set(latencies.keys) == ["all", "apns", "fcm", "expo"])
    let request = try #require(latencies["all"]?["request"])
    #expect(request["count"] == 147 && request["max"].map { abs($0 - 49_000) < 50 } == true)
    #expect(request["p50"].map { abs($0 - 25_000) < 50 } == true, "three significant digits")
    let timeline = try #require(json?["timeline"] as? [[String: Any]])
    #expect(timeline.count > 10 && timeline.count <= 120)
    let perSlice = timeline.compactMap { $0["settled_per_second"] as? Double }.reduce(0, +)
    let width = try #require(timeline[0]["seconds"] as? Double) * 2
    #expect(abs(perSlice * width - 147) < 0.5, "every settlement is in one slice")
  }

  @Test func `people get a table, and the verdict last`() throws {
    let lines = try Self.report().lines(isColored: false)
    #expect(lines[0].hasPrefix("run 0badcafe: 10 calls/s for 5s, 3 devices a call"))
    #expect(lines.last == "BAD: 3 lost, 0 duplicated, 0 late, 0 failed of 150 deliveries")
    #expect(lines.contains { $0.hasPrefix("all") && $0.contains("scheduled → request") && $0.contains("49.0 ms") })
  }

  @Test func `nothing that a user gave is read as markup`() throws {
    let page = LoadPage(report: try Self.report(app: "<script>alert('&')</script>", faults: "\"><img>")).html
    #expect(page.contains("&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"))
    #expect(page.contains("&quot;&gt;&lt;img&gt;"))
    #expect(!page.contains("<script") && !page.contains("<img"))
  }

  @Test func `the page needs nothing from anywhere, and knows the dark`() throws {
    let page = LoadPage(report: try Self.report()).html
    for word in ["http://", "https://", "src=", "href=", "url(", "@import"] { #expect(!page.contains(word), "\(word)") }
    #expect(page.contains("prefers-color-scheme: dark"))
    #expect(page.components(separatedBy: "<svg").count == 4 && page.components(separatedBy: "</svg>").count == 4)
    #expect(page.components(separatedBy: "<polyline").count > 8)
    #expect(!page.contains("nan") && !page.contains("inf"))
    #expect(try XMLDocumentCheck.isWellFormed(page))
  }

  @Test func `a log without any request of the run is probably that of other simulators`() throws {
    func notes(receives: Bool) throws -> [String] {
      let shape = try LoadTestLoadTests.shape(devices: 1)
      var ledger = LoadLedger(hasLog: true)
      ledger.enter(shape.call(0), scheduledAt: Self.start)
      ledger.commit(0..<1, at: Self.start)
      if receives { ledger.receive(0, at: Self.start + 1_000) }
      ledger.settle([
        .init(
          delivery: 0, outcome: .delivered, sentAt: Self.start, answeredAt: Self.start, finishedAt: Self.start,
          deadlineAt: Self.start + 60_000_000, attempts: 1, refusals: 0)
      ])
      return LoadReport(
        ledger, shape: shape, arrivals: .bulk(calls: 1), mix: "apns=1", faults: "", clockOffset: 0
      ).notes
    }
    #expect(try notes(receives: true) == [])
    #expect(try notes(receives: false).contains { $0.hasPrefix("The log has no request of this run") })
  }

  @Test func `what was asked for and measured is in the report, in every form`() throws {
    let stages = [
      ArrivalStage(rate: 50, duration: .seconds(120)), ArrivalStage(rate: 200, duration: .milliseconds(1_500)),
    ]
    let report = LoadReport(
      LoadLedger(hasLog: true), shape: try LoadTestLoadTests.shape(),
      arrivals: .open(ArrivalSchedule(stages: stages, seed: 1)), mix: "apns=1", faults: "", clockOffset: 0,
      requirements: try LoadRequirement.list("p99<500ms"), cut: "the run was stopped")
    let lines = report.lines(isColored: false)
    #expect(lines[0].contains(": 50 calls/s for 2m, then 200 calls/s for 1s500ms, "))
    #expect(lines.contains("NOT MET: p99<500ms (measured: nothing)"))
    #expect(lines.contains("because: the run was stopped; nothing was enqueued; p99<500ms is not met"))
    let json = try JSONSerialization.jsonObject(with: Data(report.json)) as? [String: Any]
    #expect((json?["stages"] as? [[String: Double]])?.map { $0["duration_seconds"] } == [120, 1.5])
    let verdict = try #require(json?["verdict"] as? [String: Any])
    #expect(verdict["result"] as? String == "incomplete" && verdict["good"] as? Bool == false)
    #expect((verdict["requirements"] as? [[String: Any]])?.first?["condition"] as? String == "p99<500ms")
    let page = LoadPage(report: report).html
    #expect(page.contains("p99&lt;500ms (measured: nothing)") && page.contains("class=\"verdict incomplete\""))
  }

  @Test func `a run without a single call still makes a report`() throws {
    let report = LoadReport(
      LoadLedger(hasLog: false), shape: try LoadTestLoadTests.shape(), arrivals: .bulk(calls: 1), mix: "apns=1",
      faults: "", clockOffset: -5_000)
    #expect(LoadPage(report: report).html.contains("nothing to show"))
    #expect(try JSONSerialization.jsonObject(with: Data(report.json)) is [String: Any])
    let line = report.lines(isColored: false).last
    #expect(line?.hasPrefix("INCOMPLETE: 0 lost, 0 duplicated, 0 late, 0 failed of 0 deliveries. Not checked") == true)
    #expect(report.notes.count == 2 && report.notes[1].contains("5.00 ms behind"))
    let lines = report.lines(isColored: false)
    #expect(lines.contains("calls 0") && lines[0].contains(": 1 call by COPY, 3 devices a call, "))
  }

  @Test(
    arguments: [
      (0, "0.00 ms"), (420, "0.42 ms"), (9_990, "9.99 ms"), (12_340, "12.3 ms"), (999_900, "999.9 ms"),
      (4_200_000, "4.2 s"), (65_000_000, "1 m 5 s"),
    ] as [(Int64, String)])
  func `latencies read as people say them`(microseconds: Int64, text: String) {
    #expect(LatencyHistogram.text(microseconds) == text)
  }

  @Test func `the bar is full when all is settled`() {
    var progress = LoadProgress(
      planned: 200, enqueued: 150, received: 120, settled: 100, p50: 1_500, p99: 9_000, max: 20_000)
    #expect(progress.bar(width: 10) == "[#####-----] 50 %" && progress.inFlight == 50)
    #expect(
      progress.text(elapsed: 3, rate: 33.4)
        == "3.0 s  100 of 200 settled, 33/s  50 in flight  p50 1.50 ms  p99 9.00 ms  max 20.0 ms")
    progress.settled = 200
    #expect(progress.bar(width: 10) == "[##########] 100 %")
  }
}

/// Elements of HTML that are open must be closed in turn, but for those that never are.
private enum XMLDocumentCheck {
  static func isWellFormed(_ page: String) throws -> Bool {
    var open: [Substring] = []
    for match in page.matches(of: /<(\/?)([a-z0-9]+)[^>]*?(\/?)>/) {
      let (name, isEnd) = (match.2, !match.1.isEmpty)
      if !match.3.isEmpty || name == "meta" { continue }
      if isEnd {
        guard open.popLast() == name else { return false }
      } else {
        open.append(name)
      }
    }
    return open.isEmpty
  }
}

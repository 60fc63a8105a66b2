// The user's own calls: their file, and how their deliveries are told apart.

import Console
import Foundation
import Providers
import Runtime
import Testing

@testable import Lab

@Suite struct LoadTestFileTests {
  private static let start: Int64 = 1_790_000_000_000_000

  private static func file(_ text: String, _ body: (String) throws -> Void) throws {
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("calls-\(UUID()).jsonl").path
    defer { try? FileManager.default.removeItem(atPath: path) }
    try text.write(toFile: path, atomically: true, encoding: .utf8)
    try body(path)
  }

  @Test func `each malformed line is named by its number`() throws {
    let good = #"{"payload":{"from":"d"},"recipients":["ana"]}"#
    try Self.file("\(good)\nx\n\n\(good)\n{\"payload\":1,\"recipients\":[]}\n") { path in
      let error = try #require(throws: CommandFailure.self) { try LoadCallFile.read(path) }
      #expect(error.description.hasPrefix("\(path): nothing was enqueued. line 2: not JSON"))
      #expect(error.description.hasSuffix("; line 5: payload must be an object"))
    }
    try Self.file("\n \n") { path in #expect(throws: CommandFailure.self) { try LoadCallFile.read(path) } }
    try Self.file("\(good)\n\n\(good)") { path in
      let lines = try LoadCallFile.read(path)
      #expect(lines.map(\.number) == [1, 3])
    }
  }

  @Test func `lines are used in turn, with the call id of the load and everything else as it is`() throws {
    var shape = try LoadTestLoadTests.shape()
    shape.lines = try [
      #"{"app":"condo","payload":{"callId":"x","from":"d","n":1.50},"recipients":["ana"],"ringSeconds":90}"#,
      #"{"payload":{},"recipients":[{"userId":"bruno"}]}"#,
    ].enumerated().map { try CallLine(Array($1.utf8), number: $0 + 1) }
    let calls = (0..<3).map { shape.call($0) }
    #expect(
      calls.map { String(decoding: $0.payload, as: UTF8.self) } == [
        #"{"callId":"loadtest-0badcafe-0","from":"d","n":1.50}"#, #"{"callId":"loadtest-0badcafe-1"}"#,
        #"{"callId":"loadtest-0badcafe-2","from":"d","n":1.50}"#,
      ])
    #expect(calls.map(\.app) == ["condo", "porteiro", "condo"] && calls.map(\.ringSeconds) == [90, 60, 90])
    #expect(String(decoding: calls[1].recipients, as: UTF8.self) == #"[{"userId":"bruno"}]"#)
    #expect(shape.ringSecondsMax == 90)
  }

  private static func row(
    _ number: Int, _ device: String, _ outcome: LoadDelivery.Outcome = .delivered, isFallback: Bool = false
  ) -> LoadLedger.Settlement {
    LoadLedger.Settlement(
      delivery: number, outcome: outcome, sentAt: start + 1_000, answeredAt: start + 2_000, finishedAt: start + 3_000,
      deadlineAt: start + 60_000_000, attempts: 1, refusals: 0, provider: .fcm, device: device, isFallback: isFallback)
  }

  /// A call of two devices.
  private static func ledger() -> LoadLedger {
    var ledger = LoadLedger(hasLog: true)
    ledger.commitOwn(0, deliveries: 2, scheduledAt: start, at: start + 500)
    return ledger
  }

  @Test func `a request belongs to the delivery whose masked token it has, whichever is known first`() {
    var ledger = LoadLedger(hasLog: true)
    ledger.receiveOwn(0, device: "a", at: Self.start + 1_500)
    ledger.commitOwn(0, deliveries: 2, scheduledAt: Self.start, at: Self.start + 500)
    let isHalfSettled = ledger.settleOwn(0, [Self.row(1, "a")])
    #expect(!isHalfSettled && ledger.receivedCount == 1)
    let isSettled = ledger.settleOwn(0, [Self.row(1, "a"), Self.row(2, "b")])
    #expect(isSettled && ledger.isLogBehind && LoadVerdict(ledger).lost == 1)
    ledger.receiveOwn(0, device: "b", at: Self.start + 1_700)
    let verdict = LoadVerdict(ledger)
    #expect(verdict.isGood && verdict.enqueued == 2 && ledger.receivedCount == 2 && ledger.latency.count == 2)
    ledger.receiveOwn(0, device: "b", at: Self.start + 1_900)
    #expect(LoadVerdict(ledger).duplicated == 1)
  }

  @Test func `devices that look the same share their requests`() {
    var ledger = Self.ledger()
    for _ in 0..<2 { ledger.receiveOwn(0, device: "a", at: Self.start + 1_500) }
    let isSettled = ledger.settleOwn(0, [Self.row(1, "a"), Self.row(2, "a")])
    #expect(isSettled && LoadVerdict(ledger).isGood)
    ledger.receiveOwn(0, device: "a", at: Self.start + 1_600)
    #expect(LoadVerdict(ledger).duplicated == 1)
  }

  @Test func `a delivery that was announced and never seen is lost, and a fallback does not replace it`() {
    var ledger = Self.ledger()
    ledger.receiveOwn(0, device: "b", at: Self.start + 1_500)
    let isSettled = ledger.settleOwn(0, [Self.row(1, "a", .dead), Self.row(2, "b", isFallback: true)])
    #expect(!isSettled)
    let verdict = LoadVerdict(ledger)
    #expect(verdict.enqueued == 3 && verdict.lost == 1 && verdict.failed == 1 && verdict.delivered == 1)
    ledger.oweOwn(0, 3, device: "c", isFallback: false, attempts: 0, deadlineAt: Self.start + 60_000_000)
    #expect(LoadVerdict(ledger).lost == 0 && LoadVerdict(ledger).owed == 1)
  }

  @Test func `a call without a device has failed, and is not lost`() throws {
    var ledger = Self.ledger()
    ledger.commitOwn(1, deliveries: 0, scheduledAt: Self.start, at: Self.start + 500)
    for device in ["a", "b"] { ledger.receiveOwn(0, device: device, at: Self.start + 1_500) }
    let isSettled = ledger.settleOwn(0, [Self.row(1, "a"), Self.row(2, "b")])
    let verdict = LoadVerdict(ledger)
    #expect(isSettled && ledger.settledCount == 3 && verdict.lost == 0 && verdict.failed == 1 && verdict.result == .bad)
    #expect(verdict.outcomes == [.delivered: 2, .skipped: 1])
    #expect(try LoadVerdict(ledger, requirements: LoadRequirement.list("delivered>60%")).isGood)
  }

  // MARK: The HTTP API

  @Test(
    arguments: [
      (
        202, #"{"callId":"c","outboxId":17,"deliveries":3}"#,
        LoadAnswer.accepted(outboxID: 17, deliveries: 3, text: "202")
      ),
      (429, "", .refused("429")), (503, "", .refused("503")), (422, "{}", .refused("422")),
    ] as [(UInt16, String, LoadAnswer)])
  func `the API's answers are counted`(status: UInt16, body: String, answer: LoadAnswer) {
    #expect(Self.answer(status, body, isGenerated: false) == answer)
  }

  @Test(
    arguments: [
      (401, "", "needs a valid key"), (403, #"{"detail":"the key lacks the scope enqueue"}"#, "403: the key lacks"),
      (404, "", "404"), (202, "<html>", "202"),
      (422, #"{"field":"ringSeconds","detail":"must be a number"}"#, "422: ringSeconds: must be a number"),
    ] as [(UInt16, String, String)])
  func `an answer that all calls would get ends the run, with what it says`(status: UInt16, body: String, text: String)
  {
    guard case .failed(let reason) = Self.answer(status, body, isGenerated: true) else {
      Issue.record("\(status)")
      return
    }
    #expect(reason.contains(text))
  }

  private static func answer(_ status: UInt16, _ body: String, isGenerated: Bool) -> LoadAnswer {
    LoadAPI.answer(
      CurlResponse(status: status, body: Array(body.utf8), sentAt: SystemClock().now()), isGenerated: isGenerated)
  }
}

// The verdict over made-up runs: every way a promise can be broken is found, and nothing else is taken for one.

import Foundation
import Runtime
import Testing

@testable import Lab

@Suite struct LoadTestVerdictTests {
  private static let start: Int64 = 1_790_000_000_000_000
  private static let deadline = start + 60_000_000

  /// A call of three devices that was committed 1 ms after it was due.
  private static func ledger(hasLog: Bool = true, faults: String? = nil) throws -> LoadLedger {
    var ledger = LoadLedger(hasLog: hasLog)
    ledger.enter(try LoadTestLoadTests.shape(faults: faults, seed: 2).call(0), scheduledAt: start)
    ledger.commit(0..<3, at: start + 1_000)
    return ledger
  }

  private static func settlement(
    _ delivery: Int, _ outcome: LoadDelivery.Outcome = .delivered, sentAt: Int64 = start + 2_000, attempts: Int32 = 1,
    refusals: Int32 = 0
  ) -> LoadLedger.Settlement {
    LoadLedger.Settlement(
      delivery: delivery, outcome: outcome, sentAt: sentAt, answeredAt: sentAt + 2_000, finishedAt: sentAt + 3_000,
      deadlineAt: deadline, attempts: attempts, refusals: refusals)
  }

  /// All three delivered as they should be.
  private static func goodLedger(hasLog: Bool = true) throws -> LoadLedger {
    var ledger = try ledger(hasLog: hasLog)
    for delivery in 0..<3 { ledger.receive(delivery, at: start + 3_000) }
    ledger.settle((0..<3).map { settlement($0) })
    return ledger
  }

  @Test func `a run in which all went well is good`() throws {
    let verdict = LoadVerdict(try Self.goodLedger())
    #expect(verdict.isGood && verdict.settled == 3 && verdict.outcomes == [.delivered: 3])
    #expect(verdict.line == "GOOD: 0 lost, 0 duplicated, 0 late, 0 failed of 3 deliveries")
  }

  @Test func `a delivery that is neither settled nor owed is lost`() throws {
    var ledger = try Self.ledger()
    ledger.receive(0, at: Self.start + 3_000)
    ledger.settle([Self.settlement(0)])
    ledger.owe(1, attempts: 2, deadlineAt: Self.deadline)
    let verdict = LoadVerdict(ledger)
    #expect(verdict.lost == 1 && verdict.owed == 1 && verdict.settled == 1 && !verdict.isGood)
    #expect(verdict.line == "BAD: 1 lost, 0 duplicated, 0 late, 0 failed, 1 owed of 3 deliveries")
  }

  @Test func `a delivery that was owed and then settled is settled`() throws {
    var ledger = try Self.goodLedger()
    ledger.owe(1, attempts: 1, deadlineAt: Self.deadline)
    #expect(LoadVerdict(ledger).owed == 0 && LoadVerdict(ledger).isGood)
  }

  @Test func `delivered by the record but not in the log is lost; without a log nobody can tell`() throws {
    var ledger = try Self.ledger()
    ledger.receive(0, at: Self.start + 3_000)
    ledger.settle((0..<3).map { Self.settlement($0) })
    #expect(ledger.isLogBehind && LoadVerdict(ledger).lost == 2)
    var blind = try Self.ledger(hasLog: false)
    blind.settle((0..<3).map { Self.settlement($0) })
    #expect(!blind.isLogBehind && LoadVerdict(blind).isGood)
  }

  @Test func `a call that never was committed is not counted`() throws {
    var ledger = LoadLedger(hasLog: true)
    ledger.enter(try LoadTestLoadTests.shape().call(0), scheduledAt: Self.start)
    let verdict = LoadVerdict(ledger)
    #expect(verdict.enqueued == 0 && verdict.isGood)
  }

  @Test(arguments: [
    (requests: 2, attempts: Int32(1), refusals: Int32(0), duplicated: 1),
    // A try ended without an answer: the second request is on record.
    (2, 2, 0, 0), (3, 2, 0, 1),
    // The provider said no to the first try, so it explains nothing.
    (2, 2, 1, 1), (1, 2, 1, 0), (2, 3, 1, 0),
  ])
  func `a further request is a duplicate unless a try without an answer explains it`(
    requests: Int, attempts: Int32, refusals: Int32, duplicated: Int
  ) throws {
    var ledger = try Self.ledger()
    for delivery in 0..<3 { ledger.receive(delivery, at: Self.start + 3_000) }
    for _ in 1..<requests { ledger.receive(0, at: Self.start + 900_000) }
    ledger.settle([Self.settlement(0, attempts: attempts, refusals: refusals), Self.settlement(1), Self.settlement(2)])
    let verdict = LoadVerdict(ledger)
    #expect(verdict.duplicated == duplicated && verdict.isGood == (duplicated == 0) && verdict.repeats == requests - 1)
  }

  @Test func `a delivery that was settled twice is a duplicate`() throws {
    var ledger = try Self.ledger()
    for delivery in 0..<3 { ledger.receive(delivery, at: Self.start + 3_000) }
    ledger.settle([0, 1, 1, 2].map { Self.settlement($0) })
    #expect(LoadVerdict(ledger).duplicated == 1 && ledger.settledCount == 3)
    // Looking at the same rows again makes it no worse.
    ledger.settle([0, 2].map { Self.settlement($0) })
    #expect(LoadVerdict(ledger).duplicated == 1)
  }

  @Test func `a request after the deadline is late, even if one was in time`() throws {
    var ledger = try Self.goodLedger()
    ledger.settle([Self.settlement(2, attempts: 2)])
    ledger.receive(2, at: Self.deadline)
    #expect(LoadVerdict(ledger).isGood)
    ledger.receive(2, at: Self.deadline + 1)
    ledger.settle([Self.settlement(2, attempts: 3)])
    #expect(LoadVerdict(ledger).late == 1 && LoadVerdict(ledger).duplicated == 0 && !LoadVerdict(ledger).isGood)
  }

  @Test func `without a log a request is late by the time it left`() throws {
    var ledger = try Self.ledger(hasLog: false)
    ledger.settle([Self.settlement(0), Self.settlement(1), Self.settlement(2, sentAt: Self.deadline + 1)])
    #expect(LoadVerdict(ledger).late == 1)
  }

  @Test func `what failed breaks no promise, and faults that were asked for are told apart`() throws {
    var ledger = try Self.ledger(faults: "dead=100%")
    ledger.settle([Self.settlement(0, .dead), Self.settlement(1, .expired), Self.settlement(2, .void)])
    let verdict = LoadVerdict(ledger)
    #expect(verdict.isGood && verdict.failed == 3 && verdict.failedAsAsked == 3)
    #expect(verdict.line.contains("3 failed (3 of them with a requested fault)"))
  }

  // MARK: Latencies

  @Test func `latency counts from the schedule, whatever held the call up`() throws {
    let ledger = try Self.goodLedger()
    let stages = LoadLatencies(ledger, of: nil, isBulk: false).stages
    #expect(stages.map(\.stage) == LoadStage.allCases)
    #expect(stages.map { $0.histogram.max } == [1_000, 2_000, 3_000, 4_000, 5_000])
    for provider in LoadProvider.allCases {
      let count = ledger.deliveries.count { $0.provider == provider }
      let stages = LoadLatencies(ledger, of: provider, isBulk: false).stages
      #expect(stages.isEmpty == (count == 0) && stages.allSatisfy { $0.histogram.count == count })
    }
  }

  @Test func `in bulk all are due when the COPY was committed`() throws {
    var ledger = LoadLedger(hasLog: false)
    ledger.enter(try LoadTestLoadTests.shape().call(0))
    ledger.commit(0..<3, at: Self.start)
    ledger.settle((0..<3).map { Self.settlement($0) })
    let stages = LoadLatencies(ledger, of: nil, isBulk: true).stages
    #expect(stages.map { $0.histogram.max } == [2_000, 4_000, 5_000])
  }

  // MARK: The log

  private static let run = Array("0badcafe".utf8)

  private func line(outcome: String = "accepted", token: String, payload: String = "{}") -> ArraySlice<UInt8> {
    Array(
      #"{"at":1790000000003.042,"outcome":"\#(outcome)","provider":"fcm","token":"\#(token)","id":"x","payload":\#(payload)}"#
        .utf8)[...]
  }

  @Test func `an accepted request is taken from its line, and nothing else`() {
    func request(_ line: ArraySlice<UInt8>) -> SimulatorLogReader.Request? {
      SimulatorLogReader.request(line, run: Self.run, skipsFollowUps: true)
    }
    let token = "x0badcafe00000000001f"
    #expect(request(line(token: token)) == .init(delivery: 31, at: Self.start + 3_042))
    #expect(request(line(token: "a-token-of-somebody-else")) == nil)
    #expect(request(line(outcome: "refused", token: token)) == nil)
    #expect(request(line(token: token, payload: #"{"action":"call_cancelled"}"#)) == nil)
    #expect(request(line(token: token, payload: #"{"data":{"type":"missed_call"}}"#)) == nil)
    for text in ["", "{", "nonsense", #"{"at":"#, #"{"token":"\#(token)"}"#] {
      #expect(request(Array(text.utf8)[...]) == nil)
    }
    let missed = SimulatorLogReader.request(
      line(token: token, payload: #"{"type":"missed_call"}"#), run: Self.run, skipsFollowUps: false)
    #expect(missed?.delivery == 31, "a load of missed calls is made of them")
  }

  @Test func `the log is read on from where it ended when the run began, whole lines only`() throws {
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("log-\(UUID())").path
    defer { try? FileManager.default.removeItem(atPath: path) }
    func append(_ bytes: some Collection<UInt8>) throws {
      let file = try #require(FileHandle(forWritingAtPath: path))
      try file.seekToEnd()
      try file.write(contentsOf: Data(bytes))
      try file.close()
    }
    func lines(_ reader: inout SimulatorLogReader) throws -> [Int] {
      var found: [Int] = []
      try reader.read { found.append($0.delivery) }
      return found
    }
    var early = SimulatorLogReader(path: path, run: "0badcafe", skipsFollowUps: true)
    #expect(try lines(&early) == [], "the simulators may not have begun to write")
    let first = line(token: "x0badcafe000000000001") + [0x0A]
    try Data(first).write(to: URL(fileURLWithPath: path))
    var reader = SimulatorLogReader(path: path, run: "0badcafe", skipsFollowUps: true)
    #expect(try lines(&early) == [1] && lines(&reader) == [])
    let second = line(token: "x0badcafe000000000002") + [0x0A]
    try append(second.prefix(40))
    #expect(try lines(&reader) == [])
    try append(second.dropFirst(40) + first)
    #expect(try lines(&reader) == [2, 1])
  }
}

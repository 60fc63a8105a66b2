// The verdict over made-up runs: every way a promise can be broken is found, and nothing else is taken for one.

import Console
import Foundation
import Queue
import Runtime
import Simulators
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
    let verdict = LoadVerdict(blind)
    #expect(!blind.isLogBehind && verdict.isGood)
    #expect(verdict.line.contains("Not checked without a simulators' log: whether a push arrived at all"))
    #expect(try !LoadVerdict(Self.goodLedger()).line.contains("Not checked"))
  }

  @Test func `what the log does not show is lost only if the log goes on after it`() throws {
    var ledger = try Self.ledger()
    ledger.receive(0, at: Self.start + 3_000)
    ledger.settle([Self.settlement(0), Self.settlement(1), Self.settlement(2, sentAt: Self.start + 500_000)])
    #expect(ledger.unseenUntil == Self.start + 502_000)
    // The second delivery was answered before the end of the log, the third one after it.
    ledger.endLog(at: Self.start + 10_000)
    #expect(LoadVerdict(ledger).lost == 1 && LoadVerdict(ledger).unseen == 1 && LoadVerdict(ledger).result == .bad)
    ledger.endLog(at: Self.start)
    let verdict = LoadVerdict(ledger)
    #expect(verdict.lost == 0 && verdict.unseen == 2 && verdict.result == .incomplete)
    #expect(
      verdict.reasons.count == 1 && verdict.reasons[0].hasPrefix("2 delivered, but the simulators' log ends before"))
    #expect(verdict.line == "INCOMPLETE: 0 lost, 0 duplicated, 0 late, 0 failed, 2 not in the log yet of 3 deliveries")
  }

  @Test func `a device whose app lacks the provider has failed when its call is committed`() throws {
    var shape = try LoadTestLoadTests.shape(mix: "apns=1,expo=1", seed: 2)
    shape.missingProviders = ["porteiro": [.expo], "condo": [.apns]]
    var ledger = LoadLedger(hasLog: false)
    for number in 0..<10 { ledger.enter(shape.call(number), scheduledAt: Self.start) }
    ledger.commit(0..<30, at: Self.start + 1_000)
    let skipped = ledger.deliveries.indices.filter { ledger.deliveries[$0].provider == .expo }
    #expect(!skipped.isEmpty && skipped.count < 30 && ledger.settledCount == skipped.count && !ledger.isSettled(0..<30))
    ledger.settle(Set(0..<30).subtracting(skipped).map { Self.settlement($0) })
    let verdict = LoadVerdict(ledger)
    #expect(ledger.isSettled(0..<30) && verdict.lost == 0 && verdict.failed == skipped.count && verdict.result == .bad)
    #expect(verdict.outcomes[.skipped] == skipped.count)
  }

  @Test func `a call that never was committed is not counted`() throws {
    var ledger = LoadLedger(hasLog: true)
    ledger.enter(try LoadTestLoadTests.shape().call(0), scheduledAt: Self.start)
    let verdict = LoadVerdict(ledger)
    #expect(verdict.enqueued == 0 && verdict.result == .incomplete)
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

  @Test func `faults that were asked for break no promise`() throws {
    var ledger = try Self.ledger(faults: "dead=100%")
    ledger.settle([Self.settlement(0, .dead), Self.settlement(1, .expired), Self.settlement(2, .void)])
    let verdict = LoadVerdict(ledger)
    #expect(verdict.isGood && verdict.failed == 3 && verdict.failedAsAsked == 3)
    #expect(verdict.line.contains("3 failed (3 of them with a requested fault)"))
  }

  @Test func `a failure that nobody asked for is BAD, unless a condition allows it`() throws {
    var ledger = try Self.goodLedger()
    ledger.settle([Self.settlement(1, .expired)])
    #expect(LoadVerdict(ledger).result == .bad)
    #expect(LoadVerdict(ledger).reasons == ["1 failed without a requested fault, and no condition allows it"])
    for (condition, result) in [
      ("failed<50%", LoadVerdict.Result.good), ("failed<1", .bad), ("p99<1h", .bad), ("delivered>90%", .bad),
    ] {
      let verdict = LoadVerdict(ledger, requirements: try LoadRequirement.list(condition))
      #expect(verdict.result == result, "\(condition)")
    }
  }

  @Test func `no condition allows a broken promise`() throws {
    var ledger = try Self.ledger()
    for delivery in 0..<2 { ledger.receive(delivery, at: Self.start + 3_000) }
    ledger.settle((0..<3).map { Self.settlement($0) })
    #expect(try LoadVerdict(ledger, requirements: LoadRequirement.list("failed<=100%,delivered>0%")).result == .bad)
  }

  @Test func `a run that was stopped, or owes something, is INCOMPLETE; what is certainly bad is BAD`() throws {
    let good = try Self.goodLedger()
    #expect(LoadVerdict(good, cut: "the run was stopped").result == .incomplete)
    var owing = try Self.ledger()
    for delivery in 0..<2 { owing.receive(delivery, at: Self.start + 3_000) }
    owing.settle([Self.settlement(0), Self.settlement(1)])
    owing.owe(2, attempts: 0, deadlineAt: Self.deadline)
    #expect(LoadVerdict(owing).result == .incomplete && LoadVerdict(owing).reasons == ["1 not settled"])
    // A condition is not judged before the end.
    #expect(try LoadVerdict(owing, requirements: LoadRequirement.list("delivered>99%")).result == .incomplete)
    owing.receive(0, at: Self.start + 4_000)
    #expect(LoadVerdict(owing).result == .bad)
  }

  @Test func `calls that were refused are BAD, unless a condition allows them`() throws {
    var ledger = try Self.goodLedger()
    ledger.answer("202", isRefused: false)
    ledger.answer("429", isRefused: true)
    let verdict = LoadVerdict(ledger)
    #expect(verdict.result == .bad && verdict.refused == 1 && verdict.answers == ["202": 1, "429": 1])
    #expect(try LoadVerdict(ledger, requirements: LoadRequirement.list("refused<=50%")).isGood)
    #expect(try LoadVerdict(ledger, requirements: LoadRequirement.list("refused<50%")).result == .bad)
  }

  @Test func `a quota has the same verdict for a COPY as for single calls`() {
    let usedUp = PostgresError(.server(sqlState: PostgresError.quotaState), "", hint: "push.quotas shows it.")
    let tooMany = PostgresError(.server(sqlState: "22023"), "", hint: "push.quotas shows it.")
    let unknown = PostgresError(.server(sqlState: "22023"), "", hint: "Register the app.")
    #expect([usedUp, tooMany, unknown].map { LoadDatabase.refusal($0, isCopy: true) } == ["53Q01", "22023", nil])
    #expect([usedUp, tooMany, unknown].map { LoadDatabase.refusal($0) } == ["53Q01", nil, nil])
    var single = LoadLedger(hasLog: false)
    for _ in 0..<5 { single.answer("53Q01", isRefused: true) }
    var copy = LoadLedger(hasLog: false)
    copy.answer("53Q01", isRefused: true, count: 5)
    #expect(LoadVerdict(copy) == LoadVerdict(single) && LoadVerdict(copy).result == .bad)
  }

  @Test func `calls that nobody answered are BAD if others were answered afterwards, else the run is INCOMPLETE`()
    throws
  {
    var ledger = try Self.goodLedger()
    ledger.answer("no answer (NotConnected)", isRefused: true, count: 4)
    #expect(LoadVerdict(ledger).result == .bad)
    ledger.excuse(4)
    let verdict = LoadVerdict(ledger, cut: "the load ended early: no call was answered for 10s")
    #expect(verdict.result == .incomplete && verdict.calls == 4 && verdict.refused == 0)
  }

  @Test func `what a database that is gone does not say is owed, not lost`() throws {
    var ledger = try Self.ledger(hasLog: false)
    ledger.settle([Self.settlement(0)])
    #expect(LoadVerdict(ledger).lost == 2)
    ledger.oweRest()
    #expect(LoadVerdict(ledger).lost == 0 && LoadVerdict(ledger).owed == 2 && LoadVerdict(ledger).result == .incomplete)
  }

  @Test func `each verdict has an exit code of its own`() {
    #expect(([.good, .bad, .incomplete] as [LoadVerdict.Result]).map(\.exitCode) == [0, 1, 2])
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

  private func line(outcome: String = "accepted", token: String, payload: String = "{}") -> ArraySlice<UInt8> {
    Array(
      #"{"at":1790000000003.042,"outcome":"\#(outcome)","provider":"fcm","token":"\#(token)","id":"x","payload":\#(payload)}"#
        .utf8)[...]
  }

  @Test func `an accepted request is taken from its line, and nothing else`() throws {
    func request(_ line: ArraySlice<UInt8>) throws -> SimulatorLogReader.Request? {
      SimulatorLogReader.request(line, .init(try LoadTestLoadTests.shape()))
    }
    let token = "x0badcafe00000000001f"
    #expect(try request(line(token: token)) == .init(target: .delivery(31), at: Self.start + 3_042))
    #expect(try request(line(token: "a-token-of-somebody-else")) == nil)
    #expect(try request(line(outcome: "refused", token: token)) == nil)
    #expect(try request(line(token: token, payload: #"{"action":"call_cancelled"}"#)) == nil)
    #expect(try request(line(token: token, payload: #"{"data":{"type":"missed_call"}}"#)) == nil)
    for text in ["", "{", "nonsense", #"{"at":"#, #"{"token":"\#(token)"}"#] {
      #expect(try request(Array(text.utf8)[...]) == nil)
    }
    let missed = SimulatorLogReader.request(
      line(token: token, payload: #"{"type":"missed_call"}"#), .init(try LoadTestLoadTests.shape(kind: .missedCall)))
    #expect(missed?.target == .delivery(31), "a load of missed calls is made of them")
  }

  @Test func `a request of the user's own call is found by the call's id and the masked token`() throws {
    var shape = try LoadTestLoadTests.shape()
    shape.lines = [try CallLine(Array(#"{"payload":{},"recipients":[]}"#.utf8), number: 1)]
    func request(_ payload: String) -> SimulatorLogReader.Request? {
      SimulatorLogReader.request(line(token: "abcdefghijkl", payload: payload), .init(shape))
    }
    #expect(
      request(#"{"x":"{\"callId\":\"loadtest-0badcafe-17\"}"}"#)
        == .init(target: .call(17, device: "abcd…ijkl"), at: Self.start + 3_042))
    #expect(request(#"{"callId":"loadtest-1badcafe-17"}"#) == nil && request("{}") == nil)
    #expect(request(#"{"callId":"loadtest-0badcafe-17","type":"missed_call"}"#) == nil)
    #expect(LoadDatabase.device("http…5Zw=", at: "webpush") == "webpush")
  }

  @Test func `the log is read on from where it ended when the run began, whole lines only`() async throws {
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("log-\(UUID())").path
    defer { try? FileManager.default.removeItem(atPath: path) }
    let filter = SimulatorLogReader.Filter(try LoadTestLoadTests.shape())
    let http = LoadHTTP(caFile: nil, connections: 1, timeout: .seconds(1))  // For URLs only.
    await #expect(throws: CommandFailure.self, "a log that does not exist") {
      try await SimulatorLogReader(path, filter: filter, http: http)
    }
    func append(_ bytes: some Collection<UInt8>) throws {
      let file = try #require(FileHandle(forWritingAtPath: path))
      try file.seekToEnd()
      try file.write(contentsOf: Data(bytes))
      try file.close()
    }
    func lines(_ reader: inout SimulatorLogReader) async throws -> [SimulatorLogReader.Request.Target] {
      await reader.read().map(\.target)
    }
    let first = line(token: "x0badcafe000000000001") + [0x0A]
    try Data(first).write(to: URL(fileURLWithPath: path))
    var reader = try await SimulatorLogReader(path, filter: filter, http: http)
    #expect(try await lines(&reader) == [], "what is there already belongs to other runs")
    let second = line(token: "x0badcafe000000000002") + [0x0A]
    try append(second.prefix(40))
    #expect(try await lines(&reader) == [])
    try append(second.dropFirst(40) + first)
    #expect(try await lines(&reader) == [.delivery(2), .delivery(1)])
    #expect(reader.end == Self.start + 3_042 - LoadLogWait.disorderMax, "the next line may be of an earlier request")
  }

  @Test func `the log is read from the simulators of another machine`() async throws {
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("log-\(UUID())").path
    defer { try? FileManager.default.removeItem(atPath: path) }
    var configuration = SimulatorSuite.Configuration()
    configuration.logFile = path
    configuration.ports.log = 0
    let suite = try await SimulatorSuite.start(configuration)
    let url = "https://127.0.0.1:\(try #require(suite.log).port)/log"
    // More than one piece.
    let other = Array(String(repeating: "x", count: 1 << 20).utf8) + [0x0A]
    let file = try #require(FileHandle(forWritingAtPath: path))
    try file.write(contentsOf: Data(other))
    let filter = SimulatorLogReader.Filter(try LoadTestLoadTests.shape())
    let http = LoadHTTP(caFile: suite.material.authorityFile, connections: 1, timeout: .seconds(60))
    var reader = try await SimulatorLogReader(url, filter: filter, http: http)
    let first = line(token: "x0badcafe000000000001") + [0x0A]
    try file.write(contentsOf: Data(other) + Data(first))
    let targets = await reader.read().map(\.target)
    #expect(targets == [.delivery(1)])
    let further = await reader.read()
    #expect(further.isEmpty && reader.trouble == nil && reader.end == .max, "simulators that answer are not frozen")
    for (wrong, hint) in [(url + "/x", "404"), ("https://127.0.0.1:\(suite.apnsProduction.port)/log", "")] {
      let error = await #expect(throws: CommandFailure.self) {
        try await SimulatorLogReader(wrong, filter: filter, http: http)
      }
      #expect(error?.description.contains(hint) == true || hint.isEmpty)
    }
    await suite.stop()
    let last = await reader.read()
    #expect(last.isEmpty && reader.trouble != nil, "a server that is gone is no end of the run, but told")
    #expect(reader.end == Self.start + 3_042 - LoadLogWait.disorderMax)
    await http.close()
  }
}

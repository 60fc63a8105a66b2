// Tests of what the collector does with Expo's receipts.

import Logging
import Providers
import Queue
import Runtime
import Synchronization
import Testing

@testable import Dispatching

extension DueReceipt {
  static func test(_ ticket: String) -> DueReceipt {
    DueReceipt(ticket: ticket, token: Array("token of \(ticket)".utf8), sentAtMilliseconds: 1234)
  }
}

/// Tickets in memory, which record the calls of the collector.
private final class TicketStore: ReceiptStore {
  struct State {
    var due: [[DueReceipt]]
    var calls: [String] = []
    var expected = 0
    var waiting: CheckedContinuation<Void, Never>?
  }

  let state: Mutex<State>

  init(_ due: [[DueReceipt]]) { state = Mutex(State(due: due)) }

  private func note(_ call: String) {
    let waiting: CheckedContinuation<Void, Never>? = state.withLock { state in
      state.calls.append(call)
      guard state.calls.count >= state.expected, let waiting = state.waiting else { return nil }
      state.waiting = nil
      return waiting
    }
    waiting?.resume()
  }

  /// Returns when this number of calls that change something has been made.
  func calls(_ count: Int) async -> [String] {
    await withCheckedContinuation { continuation in
      let isThere = state.withLock { state in
        state.expected = count
        if state.calls.count >= count { return true }
        state.waiting = continuation
        return false
      }
      if isThere { continuation.resume() }
    }
    return state.withLock { $0.calls }
  }

  func claimReceipts(app: String, max: Int, lease: Nanoseconds) async throws(OutboxError) -> [DueReceipt] {
    state.withLock { $0.due.isEmpty ? [] : $0.due.removeFirst() }
  }
  func settleReceipts(app: String, _ results: [ReceiptResult]) async throws(OutboxError) -> Int {
    note("settle \(results.map { "\($0.ticket):\($0.reason ?? "ok")" }.joined(separator: " "))")
    return results.count
  }
  func postponeReceipts(app: String, _ tickets: [String], by delay: Nanoseconds) async throws(OutboxError) -> Int {
    note("postpone \(tickets.joined(separator: " ")) by \(delay.milliseconds)")
    return tickets.count
  }
  func giveUpReceipts(app: String) async throws(OutboxError) -> Int {
    state.withLock { $0.due.count == 1 } ? 3 : 0
  }
}

@Suite("Receipt collector", .timeLimit(.minutes(10))) struct ReceiptCollectorTests {
  @Test("due receipts are read, stored and reported; those that Expo does not have yet are postponed")
  func collects() async {
    let store = TicketStore([[.test("a"), .test("b")], [.test("c")]])
    let loop = EventLoop(name: "receipts-test")
    let told = Mutex<[PushOutcome]>([])
    let answers = Mutex<[ExpoReceiptsAnswer]>([
      .receipts(["a": .accepted(messageID: nil), "b": .rejected(reason: "MessageTooBig")]), .receipts([:]),
    ])
    let collector = ReceiptCollector(
      app: "porteiro", receiptAfter: .milliseconds(80), store: store, loop: loop,
      logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
      read: { _ in answers.withLock { $0.isEmpty ? .receipts([:]) : $0.removeFirst() } },
      report: { failures in told.withLock { $0 += failures.map(\.outcome) } })
    await collector.start()
    let calls = await store.calls(2)
    await collector.stop()
    #expect(calls == ["settle a:ok b:MessageTooBig", "postpone c by 80"])
    #expect(told.withLock { $0 } == [.rejected(reason: "MessageTooBig")])
    #expect(await collector.givenUpCount == 3)
    loop.stop()
  }

  @Test("when Expo refuses, the lane is told, and the receipts are requested again after their lease")
  func refused() async {
    let store = TicketStore([[.test("a")], [.test("b")]])
    let loop = EventLoop(name: "receipts-test")
    let told = Mutex<[PushOutcome]>([])
    let answers = Mutex<[ExpoReceiptsAnswer]>([.failed(.unauthorized(reason: "UNAUTHORIZED"))])
    let collector = ReceiptCollector(
      app: "porteiro", receiptAfter: .milliseconds(80), store: store, loop: loop,
      logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
      read: { _ in answers.withLock { $0.isEmpty ? .receipts(["b": .accepted(messageID: nil)]) : $0.removeFirst() } },
      report: { failures in told.withLock { $0 += failures.map(\.outcome) } })
    await collector.start()
    #expect(await store.calls(1) == ["settle b:ok"])
    await collector.stop()
    #expect(told.withLock { $0 } == [.unauthorized(reason: "UNAUTHORIZED")])
    loop.stop()
  }
}

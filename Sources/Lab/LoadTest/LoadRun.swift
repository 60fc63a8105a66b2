// A running load test: enqueues calls by their schedule, and checks their results until all are known.

import Console
import Queue
import Runtime

/// How the calls of a load are enqueued.
enum LoadArrivals: Sendable {
  /// One by one, when they are due, whether or not earlier calls are finished.
  case open(ArrivalSchedule)
  /// All of them in one COPY.
  case bulk(calls: Int)

  var isBulk: Bool {
    if case .bulk = self { true } else { false }
  }
}

/// One run.
actor LoadRun {
  /// How long to wait for unfinished deliveries after Ctrl-C.
  static let waitAfterStop = Nanoseconds.seconds(5)
  /// Interval between reads of the database and the log. It is longer if reading takes more than a twentieth of the
  /// time, so that reading does not distort the measurement.
  private static let interval = Nanoseconds.milliseconds(250)
  private static let intervalMax = Nanoseconds.seconds(2)

  let database: LoadDatabase
  private let sender: any LoadSender
  private let arrivals: LoadArrivals
  /// How long to wait for unfinished deliveries after the last call.
  private let wait: Nanoseconds
  private let stop: LoadStop
  private let clock = SystemClock()

  private(set) var ledger: LoadLedger
  /// push.outbox.id of all calls that were committed.
  private(set) var outboxIDs: [Int64] = []
  /// push.outbox.id of calls that are not finished.
  private var unfinished: [Int64] = []
  /// The numbers of the user's own calls, by push.outbox.id.
  private var ownCalls: [Int64: Int] = [:]
  /// Microseconds since 1970 at which calls were due; empty in bulk.
  private var dueAt: [Int64] = []
  private var log: SimulatorLogReader?
  private var isFeeding = true
  /// The reason why a call could not be enqueued, or the database not be read. After it, no more calls are enqueued.
  private(set) var failure: String?
  /// Calls, and reads of the database, that nobody answered.
  private var unansweredCalls = LoadSilence()
  private var unansweredReads = LoadSilence()
  /// Why the last of these calls was not answered.
  private var unansweredReason = ""
  /// Whether the calls since the last answer were not answered because nobody could be reached.
  private var isUnreachable = false
  /// Whether the database was not read for so long that nothing more is known of it.
  private var isDatabaseGone = false

  private var shape: LoadShape { database.shape }

  /// - Parameters:
  ///   - sender: enqueues single calls.
  ///   - log: the simulators' log; with nil, received requests are not checked.
  init(
    database: LoadDatabase, sender: any LoadSender, arrivals: LoadArrivals, wait: Nanoseconds, log: SimulatorLogReader?,
    stop: LoadStop
  ) {
    self.database = database
    self.sender = sender
    self.arrivals = arrivals
    self.wait = wait
    self.stop = stop
    self.log = log
    ledger = LoadLedger(hasLog: log != nil)
  }

  /// Why the run ended early; nil if it did not.
  var cut: String? {
    if let failure { return "the load ended early: \(failure)" }
    if isUnreachable { return "no call was answered: \(unansweredReason)" }
    if let trouble = log?.trouble { return "the end of the simulators' log could not be read: \(trouble)" }
    return stop.isRequested ? "the run was stopped" : nil
  }

  /// Number of deliveries of a complete run.
  private(set) var plannedCount = 0

  /// Runs until all results are known, the wait is over, or the run was stopped.
  ///
  /// - Parameter show: called with the progress, about every quarter of a second.
  func run(_ show: @Sendable (LoadProgress) -> Void) async throws {
    let feeding = enter()
    defer { feeding.cancel() }
    var idleSince: Instant?
    var deadline = Instant.distantFuture
    while true {
      let started = clock.now()
      if stop.isRequested { feeding.cancel() }
      _ = try await read()
      show(progress)
      if isDatabaseGone { break }
      let now = clock.now()
      if !isFeeding {
        if deadline == .distantFuture { deadline = now + wait }
        idleSince = unfinished.isEmpty ? idleSince ?? now : nil
        if let idleSince, !ledger.isLogBehind || now > idleSince + LoadLogWait.delayMax { break }
        if now > min(deadline, stop.since.map { $0 + Self.waitAfterStop } ?? deadline) || stop.isUrgent { break }
      }
      let cost = now - started
      // Only a cancelled sleep throws, and the run then ends.
      try await Task.sleep(for: .nanoseconds(min(max(Self.interval, cost * 20), Self.intervalMax).count))
    }
    feeding.cancel()
    await feeding.value
    // A fallback may have been made after all others were settled.
    if shape.hasOwnCalls { unfinished = outboxIDs }
    while !isDatabaseGone, try await !read(alsoOwed: true) {
      try await Task.sleep(for: .nanoseconds(Self.interval.count))
    }
    if isDatabaseGone { ledger.oweRest() }
    if outboxIDs.isEmpty, unansweredCalls.count > 0, unansweredCalls.count == ledger.refusedCount { excuseCalls() }
    try await catchUp()
    show(progress)
  }

  /// Reads the log until it shows what is settled, or goes on after that. A delivery that was settled since the log was read is not lost.
  private func catchUp() async throws {
    var wait = LoadLogWait(at: clock.now())
    while let end = log?.end, ledger.isLogBehind {
      if stop.isUrgent { return ledger.endLog(at: 0) }
      if wait.isOver(isPast: end >= ledger.unseenUntil, at: clock.now()) { return ledger.endLog(at: end) }
      try await Task.sleep(for: .milliseconds(50))
      await readLog()
    }
  }

  var progress: LoadProgress {
    LoadProgress(
      // Of the user's own calls, the number of deliveries is known when they are enqueued.
      planned: shape.hasOwnCalls ? nil : plannedCount, enqueued: ledger.enqueuedCount,
      received: log == nil ? nil : ledger.receivedCount,
      settled: ledger.settledCount, p50: ledger.latency.value(at: 50), p99: ledger.latency.value(at: 99),
      max: ledger.latency.max)
  }

  // MARK: - Calls

  /// Adds all future calls to the ledger and starts to enqueue them.
  private func enter() -> Task<Void, Never> {
    defer { plannedCount = ledger.deliveries.count }
    switch arrivals {
    case .bulk(let calls):
      for number in 0..<calls { ledger.enter(shape.call(number)) }
      return Task { await copy(calls) }
    case .open(let schedule):
      let times = Array(schedule)
      // Filling the ledger takes time, which must not make the first calls late.
      if !shape.hasOwnCalls { for number in times.indices { ledger.enter(shape.call(number)) } }
      let start = (instant: ContinuousClock.now, wall: clock.wallMicroseconds())
      dueAt = times.map { start.wall + $0.microseconds }
      ledger.schedule(dueAt, devices: shape.devices)
      // Not on this actor, so that reading results never delays enqueueing.
      return Task.detached(priority: .high) { await self.feed(times, from: start.instant) }
    }
  }

  private func copy(_ calls: Int) async {
    do throws(PostgresError) {
      let stop = stop
      let copied = try await database.copy(calls) { stop.isRequested }
      ledger.commit(0..<copied.calls * shape.devices, at: copied.at)
      ledger.answer("committed", isRefused: false, count: copied.calls)
      outboxIDs = try await database.outboxIDs(ofCalls: copied.calls)
      unfinished = outboxIDs
    } catch {
      if let state = LoadDatabase.refusal(error, isCopy: true) {
        // Not one of them was enqueued, as if they had been refused one by one.
        ledger.answer(state, isRefused: true, count: calls)
      } else {
        failure = failure ?? CommandFailure(error).description
        // What was committed can no longer be found.
        isDatabaseGone = ledger.enqueuedCount > 0
      }
    }
    isFeeding = false
  }

  private nonisolated func feed(_ times: [Nanoseconds], from start: ContinuousClock.Instant) async {
    await withDiscardingTaskGroup { group in
      for (number, time) in times.enumerated() {
        let due = start + .nanoseconds(time.count)
        if due > .now {
          // Only a cancelled sleep throws: the run was asked to stop.
          do { try await Task.sleep(until: due, tolerance: .zero, clock: .continuous) } catch { break }
        }
        if Task.isCancelled { break }
        group.addTask { await self.enqueue(number) }
      }
    }
    await endFeeding()
  }

  private nonisolated func enqueue(_ number: Int) async {
    let call = database.shape.call(number)
    let answer = await sender.enqueue(call)
    await note(answer, to: call, at: SystemClock().wallMicroseconds())
  }

  private func note(_ answer: LoadAnswer, to call: LoadCall, at time: Int64) {
    switch answer {
    case .accepted(let outboxID, let deliveries, let text):
      unansweredCalls.end()
      // A call whose users' tokens have died meanwhile has nothing to wait for.
      ledger.answer(deliveries == 0 ? "\(text) without a device" : text, isRefused: false)
      if shape.hasOwnCalls {
        ownCalls[outboxID] = call.number
        ledger.commitOwn(call.number, deliveries: deliveries, scheduledAt: dueAt[call.number], at: time)
      } else {
        ledger.commit(
          call.firstDelivery..<call.firstDelivery + call.devices.count, at: time, areSkipped: deliveries == 0)
      }
      outboxIDs.append(outboxID)
      if deliveries > 0 { unfinished.append(outboxID) }
    case .refused(let text):
      unansweredCalls.end()
      ledger.answer(text, isRefused: true)
    case .unanswered(let text, let reason):
      ledger.answer(text, isRefused: !isUnreachable)
      unansweredReason = reason
      guard !isUnreachable, unansweredCalls.note(at: clock.now()) else { return }
      excuseCalls()
      end("no call was answered for \(LoadDuration(LoadSilence.max)): \(reason)")
    case .failed(let reason): end(reason)
    }
  }

  /// The calls since the last answer were not refused: nobody could be reached.
  private func excuseCalls() {
    isUnreachable = true
    ledger.excuse(unansweredCalls.count)
  }

  /// No more calls are enqueued. A second reason would count as a second Ctrl-C.
  private func end(_ reason: String) {
    guard failure == nil else { return }
    failure = reason
    stop.request(at: clock.now())
  }

  private func endFeeding() { isFeeding = false }

  // MARK: - What became of them

  /// Looks at the log and the database.
  ///
  /// - Parameter alsoOwed: whether to read owed deliveries before finished ones, so that a delivery that moves in between is seen.
  /// - Returns: whether the database answered. If it has not for too long, the run ends.
  private func read(alsoOwed: Bool = false) async throws -> Bool {
    do {
      if alsoOwed { for owed in try await database.owed(of: unfinished) { owe(owed) } }
      try await look()
      unansweredReads.end()
      return true
    } catch let error as PostgresError where error.isOfConnection {
      if unansweredReads.note(at: clock.now()) {
        isDatabaseGone = true
        end("the database was not read for \(LoadDuration(LoadSilence.max)): \(CommandFailure(error))")
      }
      return false
    }
  }

  /// Reads new lines of the log, and the results of unfinished calls from the database.
  private func look() async throws {
    if ledger.enqueuedCount > 0 || !arrivals.isBulk { await readLog() }
    var finished: Set<Int64> = []
    for batch in LoadDatabase.batches(unfinished) {
      let rows = try await database.settlements(of: batch)
      if shape.hasOwnCalls {
        finished.formUnion(try await settleOwn(rows))
        continue
      }
      ledger.settle(rows.map(\.settlement))
      let calls = Dictionary(rows.map { ($0.call, $0.settlement.delivery / shape.devices) }, uniquingKeysWith: { $1 })
      for (id, number) in calls where ledger.isSettled(number * shape.devices..<(number + 1) * shape.devices) {
        finished.insert(id)
      }
    }
    if !finished.isEmpty { unfinished.removeAll { finished.contains($0) } }
  }

  private func readLog() async {
    // Taken out of the actor's state, because reading from a server suspends. Only the task of `run` reads.
    guard var reader = log else { return }
    let requests = await reader.read()
    log = reader
    for request in requests {
      switch request.target {
      case .delivery(let delivery): ledger.receive(delivery, at: request.at)
      case .call(let call, let device): ledger.receiveOwn(call, device: device, at: request.at)
      }
    }
  }

  /// - Returns: the calls of which nothing is owed.
  private func settleOwn(_ rows: [(call: Int64, settlement: LoadLedger.Settlement)]) async throws -> Set<Int64> {
    var settled: Set<Int64> = []
    for (id, rows) in Dictionary(grouping: rows, by: \.call) {
      guard let call = ownCalls[id], ledger.settleOwn(call, rows.map(\.settlement)) else { continue }
      settled.insert(id)
    }
    // A fallback is a further delivery.
    return settled.subtracting(try await database.owed(of: Array(settled)).map(\.call))
  }

  private func owe(_ owed: LoadDatabase.Owed) {
    guard shape.hasOwnCalls else {
      return ledger.owe(owed.delivery, attempts: owed.attempts, deadlineAt: owed.deadlineAt)
    }
    guard let call = ownCalls[owed.call] else { return }
    ledger.oweOwn(
      call, owed.delivery, device: owed.device, isFallback: owed.isFallback, attempts: owed.attempts,
      deadlineAt: owed.deadlineAt)
  }
}

// A load test under way: calls go out by their schedule, and what becomes of them is looked at until all is known.

internal import Queue
internal import Runtime

/// How the calls of a load come.
enum LoadArrivals: Sendable {
  /// One by one, when they are due, whether or not the ones before are finished.
  case open(ArrivalSchedule)
  /// All of them in one COPY.
  case bulk(calls: Int)

  var isBulk: Bool {
    if case .bulk = self { true } else { false }
  }
}

/// One run.
actor LoadRun {
  /// How long what is under way is waited for after Ctrl-C.
  static let waitAfterStop = Nanoseconds.seconds(5)
  /// The simulators write their log within 50 ms; if a line is not there after this, it never comes.
  private static let logDelayMax = Nanoseconds.seconds(2)
  /// The database and the log are looked at this often; less often where looking takes more than a twentieth of the time,
  /// so that it is not what is measured.
  private static let interval = Nanoseconds.milliseconds(250)
  private static let intervalMax = Nanoseconds.seconds(2)

  let database: LoadDatabase
  private let arrivals: LoadArrivals
  /// How long unfinished deliveries are waited for after the last call.
  private let wait: Nanoseconds
  private let stop: LoadStop
  private let clock = SystemClock()

  private(set) var ledger: LoadLedger
  /// Numbers in the outbox of all calls that were committed.
  private(set) var outboxIDs: [Int64] = []
  /// Those of calls that are not finished.
  private var unfinished: [Int64] = []
  private var log: SimulatorLogReader?
  private var isFeeding = true
  /// Why a call could not be enqueued: no more are tried then.
  private(set) var failure: PostgresError?

  private var shape: LoadShape { database.shape }

  /// - Parameter logFile: what the simulators write; nil leaves what arrived out of it.
  init(database: LoadDatabase, arrivals: LoadArrivals, wait: Nanoseconds, logFile: String?, stop: LoadStop) {
    self.database = database
    self.arrivals = arrivals
    self.wait = wait
    self.stop = stop
    let shape = database.shape
    log = logFile.map { SimulatorLogReader(path: $0, run: shape.run, skipsFollowUps: shape.kind.rings) }
    ledger = LoadLedger(hasLog: logFile != nil)
  }

  /// Deliveries there will be when nothing stops the run.
  private(set) var plannedCount = 0

  /// Runs to the end: all is known, or the wait is over, or the run was stopped.
  ///
  /// - Parameter show: called with how far it has come, about every quarter of a second.
  func run(_ show: @Sendable (LoadProgress) -> Void) async throws {
    let feeding = enter()
    defer { feeding.cancel() }
    var idleSince: Instant?
    var deadline = Instant.distantFuture
    while true {
      let started = clock.now()
      if stop.isRequested { feeding.cancel() }
      try await look()
      show(progress)
      let now = clock.now()
      if !isFeeding {
        if deadline == .distantFuture { deadline = now + wait }
        idleSince = unfinished.isEmpty ? idleSince ?? now : nil
        if let idleSince, !ledger.isLogBehind || now > idleSince + Self.logDelayMax { break }
        if now > min(deadline, stop.since.map { $0 + Self.waitAfterStop } ?? deadline) || stop.isUrgent { break }
      }
      let cost = now - started
      // Only a cancelled sleep throws, and then the run is over.
      try await Task.sleep(for: .nanoseconds(min(max(Self.interval, cost * 20), Self.intervalMax).count))
    }
    await feeding.value
    // First what is owed, then what is finished: a delivery that goes from one to the other in between is seen.
    for owed in try await database.owed(of: unfinished) {
      ledger.owe(owed.delivery, attempts: owed.attempts, deadlineAt: owed.deadlineAt)
    }
    try await look()
    show(progress)
  }

  var progress: LoadProgress {
    LoadProgress(
      planned: plannedCount, enqueued: ledger.enqueuedCount, received: log == nil ? nil : ledger.receivedCount,
      settled: ledger.settledCount, p50: ledger.latency.value(at: 50), p99: ledger.latency.value(at: 99),
      max: ledger.latency.max)
  }

  // MARK: - Calls

  /// Enters all calls to come, and starts to enqueue them.
  private func enter() -> Task<Void, Never> {
    defer { plannedCount = ledger.deliveries.count }
    switch arrivals {
    case .bulk(let calls):
      for number in 0..<calls { ledger.enter(shape.call(number)) }
      return Task { await copy(calls) }
    case .open(let schedule):
      let start = (instant: ContinuousClock.now, wall: clock.wallMicroseconds())
      let times = Array(schedule)
      for (number, time) in times.enumerated() {
        ledger.enter(shape.call(number), scheduledAt: start.wall + time.microseconds)
      }
      // Off this actor, so that what is looked at never holds up what is sent.
      return Task.detached(priority: .high) { await self.feed(times, from: start.instant) }
    }
  }

  private func copy(_ calls: Int) async {
    do throws(PostgresError) {
      let stop = stop
      let copied = try await database.copy(calls) { stop.isRequested }
      ledger.commit(0..<copied.calls * shape.devices, at: copied.at)
      outboxIDs = try await database.outboxIDs(ofCalls: copied.calls)
      unfinished = outboxIDs
    } catch {
      failure = error
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
    do throws(PostgresError) {
      let id = try await database.enqueue(call)
      await commit(call, as: id, at: SystemClock().wallMicroseconds())
    } catch {
      await fail(error)
    }
  }

  private func commit(_ call: LoadCall, as outboxID: Int64, at time: Int64) {
    ledger.commit(call.firstDelivery..<call.firstDelivery + call.devices.count, at: time)
    outboxIDs.append(outboxID)
    unfinished.append(outboxID)
  }

  private func fail(_ error: PostgresError) {
    failure = failure ?? error
    stop.request(at: clock.now())
  }

  private func endFeeding() { isFeeding = false }

  // MARK: - What became of them

  /// Reads on in the log and asks the database about calls that are not finished.
  private func look() async throws {
    if ledger.enqueuedCount > 0 || !arrivals.isBulk { try log?.read { ledger.receive($0.delivery, at: $0.at) } }
    var finished: Set<Int64> = []
    for batch in LoadDatabase.batches(unfinished) {
      let rows = try await database.settlements(of: batch)
      ledger.settle(rows.map(\.settlement))
      var counts: [Int64: Int] = [:]
      for row in rows {
        counts[row.call, default: 0] += 1
        if counts[row.call] == shape.devices { finished.insert(row.call) }
      }
    }
    if !finished.isEmpty { unfinished.removeAll { finished.contains($0) } }
  }
}

// A running load test: enqueues calls by their schedule, and checks their results until all are known.

internal import Queue
internal import Runtime

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
  /// The simulators write their log within 50 ms; a line that is missing after this time never comes.
  private static let logDelayMax = Nanoseconds.seconds(2)
  /// Interval between reads of the database and the log. It is longer if reading takes more than a twentieth of the
  /// time, so that reading does not distort the measurement.
  private static let interval = Nanoseconds.milliseconds(250)
  private static let intervalMax = Nanoseconds.seconds(2)

  let database: LoadDatabase
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
  private var log: SimulatorLogReader?
  private var isFeeding = true
  /// The reason why a call could not be enqueued. After it, no more calls are enqueued.
  private(set) var failure: PostgresError?

  private var shape: LoadShape { database.shape }

  /// - Parameter logFile: the simulators' log; with nil, received requests are not checked.
  init(database: LoadDatabase, arrivals: LoadArrivals, wait: Nanoseconds, logFile: String?, stop: LoadStop) {
    self.database = database
    self.arrivals = arrivals
    self.wait = wait
    self.stop = stop
    let shape = database.shape
    log = logFile.map { SimulatorLogReader(path: $0, run: shape.run, skipsFollowUps: shape.kind.rings) }
    ledger = LoadLedger(hasLog: logFile != nil)
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
      // Only a cancelled sleep throws, and the run then ends.
      try await Task.sleep(for: .nanoseconds(min(max(Self.interval, cost * 20), Self.intervalMax).count))
    }
    await feeding.value
    // Reads owed deliveries before finished ones, so that a delivery that moves in between is seen.
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

  /// Adds all future calls to the ledger and starts to enqueue them.
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
      // Not on this actor, so that reading results never delays enqueueing.
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

  /// Reads new lines of the log, and the results of unfinished calls from the database.
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

// Enqueues calls in groups: calls that arrive while a group is being written share the next commit, so one disk sync
// serves all of them.

internal import Queue
internal import Runtime

/// Enqueues calls in groups. A single call does not wait for others.
///
/// One statement, `push.enqueue_calls`, enqueues the valid new calls of a group. It skips a call that is invalid or
/// exists already; that call is then enqueued by `push.enqueue_call`, which returns the reason. If the statement fails
/// for the whole group, each half is tried again, down to the single call that fails. The calls of that call's app are
/// then enqueued one by one for a while, so that they cannot delay other apps.
actor APIEnqueuer {
  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  /// Maximum number of groups in flight. While one waits for the disk, the next is written. The second group starts
  /// when at least `nextGroupMin` calls wait, or when the first has taken longer than `nextGroupAfter`.
  static let groupsMax = 2
  static let nextGroupMin = 16
  static let nextGroupAfter = Nanoseconds.milliseconds(10)
  static let groupCallsMax = 64
  static let groupBytesMax = 524_288
  static let waitingMax = 1_024
  /// If a group fails after more than this time, its calls are not tried again.
  static let lateAfter = Nanoseconds.seconds(2)
  /// How long the calls of an app are enqueued one by one.
  static let aloneFor = Nanoseconds.seconds(10)

  /// Nil if the group skipped the call.
  private typealias Answer = Result<EnqueuedCall?, APIProblem>
  private struct Waiting {
    let call: APICall
    let continuation: CheckedContinuation<Answer, Never>
  }
  private struct Member {
    let app: String
    let waiting: Waiting
  }

  private let database: PostgresPool
  private let clock: any GatewayClock
  private var waiting = FairQueue<String, Waiting>(countMax: waitingMax)
  private var groups = 0
  private var lastBegan = Instant(nanoseconds: 0)
  private var isScheduled = false
  private var alone: [String: Instant] = [:]

  init(database: PostgresPool, clock: any GatewayClock = SystemClock()) {
    self.database = database
    self.clock = clock
    loop = database.loop
  }

  /// Enqueues a call, and returns once it is on disk.
  ///
  /// - Throws: 422 for an invalid call, 503 if the database does not answer.
  func enqueue(_ call: APICall, of client: APIClient) async throws(APIProblem) -> EnqueuedCall {
    // Small calls in the same group would have to wait for a large one.
    guard !call.isLarge else { return try await enqueueAlone(call, of: client) }
    if let until = alone[client.app] {
      if clock.now() < until { return try await enqueueAlone(call, of: client) }
      alone[client.app] = nil
    }
    let answer: Answer = await withCheckedContinuation { continuation in
      if let displaced = waiting.append(Waiting(call: call, continuation: continuation), of: client.app) {
        displaced.continuation.resume(returning: .failure(.overloaded))
      }
      startGroups()
    }
    if let made = try answer.get() { return made }
    return try await enqueueAlone(call, of: client)
  }

  private func enqueueAlone(_ call: APICall, of client: APIClient) async throws(APIProblem) -> EnqueuedCall {
    let result = try await database.query(
      APIStatements.enqueueCall, call.parameters, for: .call(client), isRepeatable: call.hasID)
    return EnqueuedCall(
      callID: result.text(0, 0), outboxID: result.int64(0, 1), deliveries: result.int32(0, 2),
      isDuplicate: result.bool(0, 3), skipped: result.int32(0, 4))
  }

  // MARK: - Groups

  private func startGroups() {
    while groups < Self.groupsMax, !waiting.isEmpty {
      // A group costs as much as a dozen calls. A small second group would take CPU time that larger groups need.
      if groups > 0, waiting.count < Self.nextGroupMin {
        let due = lastBegan + Self.nextGroupAfter
        guard loop.now >= due else { return startGroups(at: due) }
      }
      lastBegan = loop.now
      var group: [Member] = []
      var bytes = 0
      while group.count < Self.groupCallsMax, bytes < Self.groupBytesMax, let (app, next) = waiting.popFirst() {
        group.append(Member(app: app, waiting: next))
        bytes += next.call.size
      }
      groups += 1
      Task { [group] in
        await write(group[...])
        groups -= 1
        startGroups()
      }
    }
  }

  private func startGroups(at due: Instant) {
    guard !isScheduled else { return }
    isScheduled = true
    loop.schedule(at: due) { [self] in
      assumeIsolated { enqueuer in
        enqueuer.isScheduled = false
        enqueuer.startGroups()
      }
    }
  }

  private func write(_ group: ArraySlice<Member>) async {
    var answers = [Answer](repeating: .success(nil), count: group.count)
    let begun = clock.now()
    do throws(APIProblem) {
      let result = try await database.query(APIStatements.enqueueCalls, Self.parameters(group), isRepeatable: false)
      if result.rowCount == 1, result.isNull(0, 0) {
        guard group.count == 1 else {
          let middle = group.startIndex + group.count / 2
          await write(group[..<middle])
          return await write(group[middle...])
        }
        group.forEach { alone[$0.app] = clock.now() + Self.aloneFor }
      } else {
        for row in 0..<result.rowCount { answers[Int(result.int32(row, 0))] = .success(Self.made(result, row)) }
      }
    } catch {
      // The group may have been committed, so a call without an id must not be enqueued again. After a long wait for
      // the database, no call is.
      let isLate = clock.now() - begun > Self.lateAfter
      for (index, member) in group.enumerated() where isLate || !member.waiting.call.hasID {
        answers[index] = .failure(error)
      }
    }
    for (member, answer) in zip(group, answers) { member.waiting.continuation.resume(returning: answer) }
  }

  private static func parameters(_ group: ArraySlice<Member>) -> PostgresParameters {
    var writer = JSONWriter(reservingCapacity: group.reduce(2) { $0 + $1.waiting.call.size })
    writer.beginArray()
    for member in group { member.waiting.call.write(to: &writer) }
    writer.endArray()
    var parameters = PostgresParameters(reservingCapacity: writer.bytes.count)
    parameters.append(text: writer.bytes)
    return parameters
  }

  private static func made(_ result: PostgresResult, _ row: Int) -> EnqueuedCall {
    EnqueuedCall(
      callID: result.text(row, 4), outboxID: result.int64(row, 1), deliveries: result.int32(row, 2),
      isDuplicate: false, skipped: result.int32(row, 3))
  }
}

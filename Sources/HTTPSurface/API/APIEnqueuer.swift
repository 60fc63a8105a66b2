// Calls that arrive while others are being written share the next commit: one wait for the disk answers all of them.

internal import Queue
internal import Runtime

/// Enqueues calls in groups. A lone call waits for nobody.
///
/// One statement makes what is good of a group (`push.enqueue_calls`). What it leaves out, because it is wrong or exists
/// already, is asked for once more by itself (`push.enqueue_call`), and so learns why. A group that fails as a whole is tried
/// again in halves, down to the call at fault: its app's calls go alone for a while, so that they cost the others nothing.
actor APIEnqueuer {
  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  /// Maximum number of groups in flight: while one waits for the disk, the next is written. The second starts when at least
  /// `nextGroupMin` calls wait, or when the first has taken longer than `nextGroupAfter`.
  static let groupsMax = 2
  static let nextGroupMin = 16
  static let nextGroupAfter = Nanoseconds.milliseconds(10)
  static let groupCallsMax = 64
  static let groupBytesMax = 524_288
  static let waitingMax = 1_024
  /// A group that failed after so long is not tried again.
  static let lateAfter = Nanoseconds.seconds(2)
  /// How long an app goes alone.
  static let aloneFor = Nanoseconds.seconds(10)

  /// Nil: the group left it out.
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

  /// Returns once the call is on the disk.
  ///
  /// - Throws: 422 for a call that is wrong, 503 where the database does not answer.
  func enqueue(_ call: APICall, of client: APIClient) async throws(APIProblem) -> EnqueuedCall {
    // What one large call costs, small ones beside it would wait for.
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
      // A group costs as much as a dozen calls: beside another one a small group would keep the processors from larger ones.
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
      // Nobody knows whether it was committed: what has no id must not be asked for again. Nor is anything where the database
      // was waited for already.
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

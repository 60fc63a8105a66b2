// The statements of a load test: enqueue calls, read results, and delete on request.

import Console
import Dispatch
import Queue
import Runtime
import Synchronization

/// The outbox as a backend and ops see it.
struct LoadDatabase: LoadSender {
  /// A delivery that is still owed.
  struct Owed: Sendable {
    /// push.outbox.id of its call.
    var call: Int64
    /// The number of the delivery; of the user's own calls, the number in its call.
    var delivery: Int
    var device: String
    var isFallback: Bool
    var attempts: Int32
    var deadlineAt: Int64
  }

  let url: String
  var shape: LoadShape
  private let loop: EventLoop
  /// For reading; arrivals use the connections in `backends`.
  private let observer: LoadConnection
  private let backends: [LoadConnection]

  static let applicationName = "push-gateway-lab loadtest"
  /// Number of calls in one query.
  private static let batch = 5_000
  /// Number of calls in one piece of a COPY.
  private static let piece = 100

  /// - Parameter connections: number of connections for enqueueing single calls.
  init(url: String, shape: LoadShape, connections: Int) async throws(PostgresError) {
    self.url = url
    self.shape = shape
    let loop = EventLoop(name: "loadtest")
    self.loop = loop
    observer = LoadConnection(to: url, on: loop)
    backends = (0..<connections).map { _ in LoadConnection(to: url, on: loop) }
    for connection in [observer] + backends { try await connection.open() }
  }

  func close() async {
    for connection in [observer] + backends { await connection.close() }
  }

  // MARK: - Enqueueing

  /// Enqueues one call in a transaction of its own. When this returns, the call is committed.
  func enqueue(_ call: LoadCall) async -> LoadAnswer {
    do throws(PostgresError) {
      let rows = try await backends[call.number % backends.count].query(Self.enqueue, Self.parameters(call))
      return .accepted(outboxID: rows.int64(0, 0), deliveries: Int(rows.int64(0, 1)), text: "committed")
    } catch {
      if let state = Self.refusal(error) { return .refused(state) }
      let reason = CommandFailure(error).description
      return error.isOfConnection ? .unanswered("no answer", reason: reason) : .failed(reason)
    }
  }

  /// Enqueues each of the user's own calls and takes it back.
  ///
  /// - Parameter show: called with the number of calls that were checked, after each thousand.
  /// - Returns: the lines that the database refuses, or that have no device to ring, and why.
  func faults(show: @Sendable (Int) -> Void) async throws(PostgresError) -> [CallLine.Fault] {
    var faults: [CallLine.Fault] = []
    // A connection of its own: on one that is opened again, the call would be committed.
    let connection = try await PostgresConnection.connect(to: url, applicationName: Self.applicationName, on: loop)
    for (number, line) in shape.lines.enumerated() {
      if number > 0, number.isMultiple(of: 1_000) { show(number) }
      try await connection.script("begin")
      do throws(PostgresError) {
        let rows = try await connection.query(Self.enqueue, Self.parameters(shape.call(number)))
        if rows.int64(0, 1) == 0 {
          faults.append(.init(line: line.number, message: "no recipient has a device to send to"))
        }
      } catch {
        guard case .server = error.code, !error.isTransient else { throw error }
        // A quota that is used up is not the line's fault.
        if Self.refusal(error) == nil { faults.append(.init(line: line.number, message: error.message)) }
      }
      try await connection.script("rollback")
    }
    await connection.close()
    return faults
  }

  /// The SQLSTATE of class 53: a quota, or a server that lacks something. The next call may be accepted. Nil for any other error.
  ///
  /// - Parameter isCopy: whether the statement has many calls. More of them than the quota allows in a minute are refused as invalid (22023),
  ///   with the hint of every quota.
  static func refusal(_ error: PostgresError, isCopy: Bool = false) -> String? {
    guard case .server(let state) = error.code else { return nil }
    return state.hasPrefix("53") || isCopy && error.hint?.contains("push.quotas") == true ? state : nil
  }

  private static func parameters(_ call: LoadCall) -> PostgresParameters {
    var parameters = PostgresParameters()
    parameters.append(text: call.payload)
    parameters.append(text: call.recipients)
    parameters.append(call.app)
    parameters.append(Int32(call.ringSeconds))
    parameters.append(call.kind.rawValue)
    return parameters
  }

  /// Enqueues calls 0 to `count` - 1 by one COPY.
  ///
  /// - Parameter isCancelled: checked from time to time. Calls loaded until it is true are committed.
  /// - Returns: the number of calls committed, and the time when this was known.
  func copy(
    _ count: Int, isCancelled: @escaping @Sendable () -> Bool
  ) async throws(PostgresError) -> (calls: Int, at: Int64) {
    let outcome: Result<(calls: Int, at: Int64), PostgresError> = await withCheckedContinuation { continuation in
      DispatchQueue(label: "loadtest.copy").async {
        var sent = 0
        do throws(PostgresError) {
          try PostgresCopy.load(
            "copy push.outbox (app, kind, payload, recipients, ring_seconds) from stdin", url: url,
            applicationName: Self.applicationName
          ) {
            guard sent < count, !isCancelled() else { return nil }
            let piece = sent..<min(sent + Self.piece, count)
            sent = piece.upperBound
            return lines(piece)
          }
          continuation.resume(returning: .success((sent, SystemClock().wallMicroseconds())))
        } catch {
          continuation.resume(returning: .failure(error))
        }
      }
    }
    return try outcome.get()
  }

  /// Lines in COPY's text format. No value of a call needs escaping there.
  private func lines(_ calls: Range<Int>) -> [UInt8] {
    let end = Array("\t\(shape.ringSeconds)\n".utf8)
    var lines: [UInt8] = []
    for number in calls {
      let call = shape.call(number)
      lines += Array("\(call.app)\t\(shape.kind.rawValue)\t".utf8)
      lines += call.payload
      lines.append(UInt8(ascii: "\t"))
      lines += call.recipients
      lines += end
    }
    return lines
  }

  /// push.outbox.id of the calls of a COPY.
  func outboxIDs(ofCalls count: Int) async throws(PostgresError) -> [Int64] {
    var ids: [Int64] = []
    for start in stride(from: 0, to: count, by: Self.batch) {
      var parameters = PostgresParameters()
      parameters.append(shape.apps.map { $0 as String? })
      parameters.append((start..<min(start + Self.batch, count)).map { "\(shape.prefix)\($0)" as String? })
      let rows = try await observer.query(Self.find, parameters)
      for row in 0..<rows.rowCount { ids.append(rows.int64(row, 0)) }
    }
    return ids
  }

  // MARK: - Looking

  /// The finished deliveries of some calls, each with its call's push.outbox.id.
  ///
  /// - Parameter outboxIDs: one of `batches`.
  func settlements(
    of outboxIDs: ArraySlice<Int64>
  ) async throws(PostgresError) -> [(call: Int64, settlement: LoadLedger.Settlement)] {
    let rows = try await observer.query(Self.history, Self.parameters(outboxIDs))
    var settlements: [(call: Int64, settlement: LoadLedger.Settlement)] = []
    settlements.reserveCapacity(rows.rowCount)
    for row in 0..<rows.rowCount {
      guard let delivery = shape.hasOwnCalls ? Int(rows.int32(row, 9)) : delivery(ofUser: rows.text(row, 1)),
        let outcome = LoadDelivery.Outcome(rawValue: rows.text(row, 2))
      else { continue }
      let settlement = LoadLedger.Settlement(
        delivery: delivery, outcome: outcome, sentAt: Self.time(rows, row, 3), answeredAt: Self.time(rows, row, 4),
        finishedAt: Self.time(rows, row, 5), deadlineAt: Self.time(rows, row, 6), attempts: rows.int32(row, 7),
        refusals: rows.int32(row, 8), provider: LoadProvider(name: rows.text(row, 10)),
        device: Self.device(rows.text(row, 11), at: rows.text(row, 10)), isFallback: rows.bool(row, 12))
      settlements.append((rows.int64(row, 0), settlement))
    }
    return settlements
  }

  /// The deliveries of these calls that are not finished.
  func owed(of outboxIDs: [Int64]) async throws(PostgresError) -> [Owed] {
    var owed: [Owed] = []
    for batch in Self.batches(outboxIDs) {
      let rows = try await observer.query(Self.deliveries, Self.parameters(batch))
      for row in 0..<rows.rowCount {
        guard let delivery = shape.hasOwnCalls ? Int(rows.int32(row, 4)) : delivery(ofUser: rows.text(row, 0))
        else { continue }
        owed.append(
          Owed(
            call: rows.int64(row, 3), delivery: delivery, device: Self.device(rows.text(row, 6), at: rows.text(row, 5)),
            isFallback: rows.bool(row, 7), attempts: rows.int32(row, 1), deadlineAt: Self.time(rows, row, 2)))
      }
    }
    return owed
  }

  /// The lanes of the load, by name; empty if the role may not read push.lanes.
  func lanes() async throws(PostgresError) -> [LoadLane] {
    var parameters = PostgresParameters()
    parameters.append(shape.usedApps.map { $0 as String? })
    parameters.append(shape.usedProviders.map { $0.name as String? })
    guard let rows = try await readable(Self.lanes, parameters) else { return [] }
    return (0..<rows.rowCount).map { row in
      LoadLane(
        name: rows.text(row, 0), isPaused: rows.bool(row, 1), circuit: rows.text(row, 2),
        throttledSeconds: rows.int64(row, 3), owed: rows.int64(row, 4), owedSeconds: rows.int64(row, 5))
    }
  }

  /// The app of a key of the HTTP API; nil if there is no such key here, or the role may not read push.keys.
  func app(ofKey id: Int32) async throws(PostgresError) -> String? {
    var parameters = PostgresParameters()
    parameters.append(id)
    guard let rows = try await readable(Self.key, parameters), rows.rowCount > 0 else { return nil }
    return rows.text(0, 0)
  }

  /// The providers that an app of the load lacks, by app; empty if the role may not read push.apps.
  func missingProviders() async throws(PostgresError) -> [String: Set<LoadProvider>] {
    var parameters = PostgresParameters()
    parameters.append(shape.usedApps.map { $0 as String? })
    parameters.append(shape.usedProviders.map { $0.name as String? })
    guard let rows = try await readable(Self.missing, parameters) else { return [:] }
    var missing: [String: Set<LoadProvider>] = [:]
    for row in 0..<rows.rowCount {
      guard let provider = LoadProvider(name: rows.text(row, 1)) else { continue }
      missing[rows.text(row, 0), default: []].insert(provider)
    }
    return missing
  }

  /// The rows of a statement; nil if the role lacks the right (42501).
  private func readable(
    _ statement: PostgresStatement, _ parameters: PostgresParameters
  ) async throws(PostgresError) -> PostgresResult? {
    do throws(PostgresError) { return try await observer.query(statement, parameters) } catch {
      guard error.code == .server(sqlState: "42501") else { throw error }
      return nil
    }
  }

  /// The number of living gateways.
  func gateways() async throws(PostgresError) -> Int {
    Int(try await observer.query(Self.alive).int64(0, 0))
  }

  /// Microseconds by which the database's clock is ahead of this process's. Of several queries the shortest gives the
  /// best value.
  func clockOffset() async throws(PostgresError) -> Int64 {
    var best: (roundTrip: Int64, offset: Int64)?
    for _ in 0..<5 {
      let asked = SystemClock().wallMicroseconds()
      let theirs = try await observer.query(Self.clock).timestamp(0, 0)
      let answered = SystemClock().wallMicroseconds()
      let roundTrip = answered - asked
      if best.map({ roundTrip < $0.roundTrip }) ?? true {
        best = (roundTrip, theirs - (asked + roundTrip / 2))
      }
    }
    return best?.offset ?? 0
  }

  /// Deletes all rows of these calls.
  ///
  /// - Parameter show: called with the number of calls that were deleted, after each batch.
  func cleanUp(_ outboxIDs: [Int64], show: @Sendable (Int) -> Void) async throws(PostgresError) {
    for batch in Self.batches(outboxIDs) {
      defer { show(batch.endIndex) }
      for statement in Self.deletions { _ = try await observer.query(statement, Self.parameters(batch), patience: nil) }
    }
    var parameters = PostgresParameters()
    parameters.append(shape.apps.map { $0 as String? })
    parameters.append(shape.prefix)
    _ = try await observer.query(Self.deleteInvalidations, parameters)
  }

  // MARK: - Helpers

  /// Users of a load have the numbers of their deliveries.
  private func delivery(ofUser user: String) -> Int? {
    user.hasPrefix(shape.prefix) ? Int(user.dropFirst(shape.prefix.count)) : nil
  }

  /// The name by which the simulators' log has a device: the masked token. For web push the log has the name in the endpoint and the
  /// database the subscription, so all browsers of a call have the same one.
  static func device(_ masked: String, at provider: String) -> String {
    provider == LoadProvider.webpush.name ? provider : masked
  }

  /// The calls in batches of one query.
  static func batches(_ ids: [Int64]) -> [ArraySlice<Int64>] {
    stride(from: 0, to: ids.count, by: batch).map { ids[$0..<min($0 + batch, ids.count)] }
  }

  private static func parameters(_ ids: ArraySlice<Int64>) -> PostgresParameters {
    var parameters = PostgresParameters()
    parameters.append(Array(ids))
    return parameters
  }

  private static func time(_ rows: PostgresResult, _ row: Int, _ column: Int) -> Int64 {
    rows.isNull(row, column) ? 0 : rows.timestamp(row, column)
  }

  private static let enqueue = PostgresStatement(
    name: "loadtest_enqueue",
    sql: "select outbox_id, deliveries::bigint from push.enqueue_call($1::jsonb, $2::jsonb, $3, $4, $5)")

  private static let find = PostgresStatement(
    name: "loadtest_find", sql: "select id from push.outbox where app = any($1) and call_id = any($2) order by id")

  /// Cancels and missed calls after a call's end are not counted as deliveries of the load.
  private static let history = PostgresStatement(
    name: "loadtest_history",
    sql: """
      select outbox_id, user_id, outcome, sent_at, answered_at, finished_at, deadline_at,
        -- A hedged try is two requests.
        attempts + (reason is not distinct from 'Hedged')::int + case when failures is null then 0
          else (select count(*)::int from jsonb_array_elements(failures) f where f ? 'hedged') end,
        case when failures is null then 0
          else (select count(*)::int from jsonb_array_elements(failures) f where (f ->> 'status')::int >= 400) end,
        n, coalesce(provider, ''), coalesce(device, ''), fallback_of is not null
      from push.delivery_history
      where outbox_id = any($1) and kind in ('invite', 'notification')
      """)

  private static let deliveries = PostgresStatement(
    name: "loadtest_deliveries",
    sql: """
      select user_id, attempt, deadline_at, outbox_id, n, coalesce(provider, ''), coalesce(device, ''), fallback_of is not null
      from push.deliveries
      where outbox_id = any($1) and kind in ('invite', 'notification')
      """)

  // Releases before 0.2 have no column channel: benchmarks compare with them.
  private static let lanes = PostgresStatement(
    name: "loadtest_lanes",
    sql: """
      select l.app || '/' || coalesce(to_jsonb(l) ->> 'channel', l.provider), l.paused, coalesce(l.circuit, ''),
        coalesce(ceil(extract(epoch from l.throttled_until - now())), 0)::bigint, (l.ready + l.waiting + l.claimed)::bigint,
        coalesce(ceil(extract(epoch from d.last - now())), 0)::bigint
      from push.lanes l
      left join (
        select d.app, d.provider, max(d.deadline_at) as last from push.deliveries d where d.app = any($1) group by d.app, d.provider
      ) d on d.app = l.app and d.provider = l.provider
      where l.app = any($1) and l.provider = any($2)
      order by 1
      """)

  private static let key = PostgresStatement(name: "loadtest_key", sql: "select app from push.keys where id = $1")

  private static let missing = PostgresStatement(
    name: "loadtest_missing",
    sql: """
      select a.app, p.provider from push.apps a cross join unnest($2::text[]) p(provider)
      where a.app = any($1) and p.provider <> all (coalesce(a.providers, '{apns,fcm,expo}'))
      """)

  private static let alive = PostgresStatement(
    name: "loadtest_alive", sql: "select count(*) from push.gateways where alive")

  private static let clock = PostgresStatement(name: "loadtest_clock", sql: "select clock_timestamp()")

  private static let deletions = [
    PostgresStatement(name: "loadtest_delete_1", sql: "delete from push.delivery where outbox_id = any($1)"),
    PostgresStatement(
      name: "loadtest_delete_2",
      sql: """
        select push.cut_receipts(r, array(
          select i from unnest(r.outbox_id) with ordinality t(id, i) where t.id <> all ($1) order by i))
        from (select r.* from push.receipt_batch r where r.outbox_id && $1 order by r.id for update) r
        """),
    PostgresStatement(name: "loadtest_delete_3", sql: "delete from push.history where outbox_id = any($1)"),
    PostgresStatement(name: "loadtest_delete_4", sql: "delete from push.outbox where id = any($1)"),
  ]

  private static let deleteInvalidations = PostgresStatement(
    name: "loadtest_delete_5",
    sql: "delete from push.token_invalidations where app = any($1) and starts_with(user_id, $2)")
}

// Enqueues calls in batches. A batch is one statement, so it is enqueued completely or not at all.

internal import Console
internal import Queue
internal import Runtime

/// Enqueues through `push.enqueue_call`.
struct CallEnqueuer {
  /// The sums over all batches so far.
  struct Totals: Equatable {
    var calls = 0
    var deliveries = 0
    var duplicates = 0
    /// Number of calls without any device.
    var unreachable = 0
  }

  let connection: PostgresConnection

  /// Enqueues a batch.
  /// - Throws: `LineFaults` with every line that the database refuses; then nothing of the batch is enqueued. Or
  ///   `PostgresError`.
  func enqueue(_ lines: [CallLine]) async throws -> Totals {
    do throws(PostgresError) {
      let rows = try await connection.query(Self.enqueue, Self.parameters(lines))
      return Totals(
        calls: Int(rows.int64(0, 0)), deliveries: Int(rows.int64(0, 1)), duplicates: Int(rows.int64(0, 2)),
        unreachable: Int(rows.int64(0, 3)))
    } catch {
      guard case .server = error.code, !error.isTransient else { throw error }
      if error.code == .server(sqlState: "42501"), error.hint == nil {
        throw CommandFailure(error, requires: "push_enqueuer")
      }
      let faults = try await faults(in: lines)
      if faults.isEmpty { throw error }
      throw LineFaults(faults: faults)
    }
  }

  /// Tries each line separately and rolls back, to find out which lines are refused, and why.
  private func faults(in lines: [CallLine]) async throws(PostgresError) -> [CallLine.Fault] {
    var faults: [CallLine.Fault] = []
    for line in lines {
      try await connection.script("begin")
      do throws(PostgresError) {
        _ = try await connection.query(Self.enqueue, Self.parameters([line]))
      } catch {
        guard case .server = error.code, !error.isTransient else { throw error }
        faults.append(CallLine.Fault(line: line.number, message: error.message))
      }
      try await connection.script("rollback")
    }
    return faults
  }

  private static func parameters(_ lines: [CallLine]) -> PostgresParameters {
    var parameters = PostgresParameters()
    parameters.append(texts: lines.map(\.app))
    parameters.append(texts: lines.map(\.payload))
    parameters.append(texts: lines.map(\.recipients))
    parameters.append(lines.map { $0.ringSeconds.map(String.init) })
    return parameters
  }

  private static let rows = """
    unnest($1::text[], $2::text[], $3::text[], $4::text[]) with ordinality
      as l(app, payload, recipients, ring_seconds, n)
    """

  private static let enqueue = PostgresStatement(
    name: "enqueue_calls",
    text: """
      select count(*) filter (where not e.duplicate), coalesce(sum(e.deliveries) filter (where not e.duplicate), 0)::bigint,
        count(*) filter (where e.duplicate), count(*) filter (where not e.duplicate and e.deliveries = 0)
      from \(rows),
        push.enqueue_call(l.payload::jsonb, l.recipients::jsonb, coalesce(l.app, 'default'), l.ring_seconds::int) e
      """)
}

/// The lines of a batch that the database refuses.
struct LineFaults: Error, CustomStringConvertible {
  /// In the order of their lines.
  var faults: [CallLine.Fault]

  var description: String { faults.map(\.description).joined(separator: "\n") }
}

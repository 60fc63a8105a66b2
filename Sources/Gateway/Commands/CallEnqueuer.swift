// Calls to the outbox in batches: a batch is one statement, so it is there as a whole or not at all.

internal import Queue
internal import Runtime

/// Enqueues through `push.enqueue_call`.
struct CallEnqueuer {
  /// What was enqueued so far.
  struct Totals: Equatable {
    var calls = 0
    var deliveries = 0
    var duplicates = 0
    /// Calls that reach no device.
    var unreachable = 0
  }

  let connection: PostgresConnection

  /// Enqueues a batch.
  /// - Throws: every line the database refuses (`LineFaults`), nothing of the batch being enqueued then; or `PostgresError`.
  func enqueue(_ lines: [CallLine]) async throws -> Totals {
    do throws(PostgresError) {
      let rows = try await connection.query(Self.enqueue, Self.parameters(lines))
      return Totals(
        calls: Int(rows.int64(0, 0)), deliveries: Int(rows.int64(0, 1)), duplicates: Int(rows.int64(0, 2)),
        unreachable: Int(rows.int64(0, 3)))
    } catch {
      guard case .server = error.code, !error.isTransient else { throw error }
      let faults = try await faults(in: lines)
      if faults.isEmpty { throw error }
      throw LineFaults(faults: faults)
    }
  }

  /// Tries each line by itself and takes it back, to learn which are refused and why.
  private func faults(in lines: [CallLine]) async throws(PostgresError) -> [CallLine.Fault] {
    try await connection.script(Self.probe)
    let rows = try await connection.query(Self.probeAll, Self.parameters(lines))
    return (0..<rows.rowCount).map {
      CallLine.Fault(line: lines[Int(rows.int64($0, 0)) - 1].number, message: rows.text($0, 1))
    }
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

  private static let probeAll = PostgresStatement(
    name: "probe_calls",
    text: """
      select l.n, f.fault
      from \(rows), pg_temp.enqueue_fault(l.payload, l.recipients, coalesce(l.app, 'default'), l.ring_seconds) f(fault)
      where f.fault is not null order by l.n
      """)

  /// An error of our own rolls the attempt back when there was none.
  private static let probe = """
    create or replace function pg_temp.enqueue_fault(payload text, recipients text, app text, ring_seconds text) returns text
    language plpgsql as $$
    begin
      perform push.enqueue_call(payload::jsonb, recipients::jsonb, app, ring_seconds::int);
      raise exception using errcode = 'PGOK0';
    exception
      when sqlstate 'PGOK0' then return null;
      when others then return sqlerrm;
    end
    $$
    """
}

/// Lines that the outbox refuses.
struct LineFaults: Error, CustomStringConvertible {
  /// In the order of the lines.
  var faults: [CallLine.Fault]

  var description: String { faults.map(\.description).joined(separator: "\n") }
}

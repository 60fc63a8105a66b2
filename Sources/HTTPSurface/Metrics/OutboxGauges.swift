// The metrics that only the database knows: number and age of pending deliveries, paused lanes, live replicas.

import Queue

/// The result of one query: the rows of `push.observe`.
struct OutboxGauges: Sendable, Equatable {
  /// What a row counts.
  struct Key: Hashable, Sendable {
    var what: String
    var app = ""
    var provider = ""
    var kind: Int16 = -1
    var state: Int16 = -1
  }

  /// The names of the states of `push.delivery.state`, in the order of their numbers.
  static let states = ["ready", "claimed", "waiting"]

  private(set) var values: [Key: Double] = [:]

  init(_ result: PostgresResult) {
    for row in 0..<result.rowCount {
      let key = Key(
        what: result.text(row, 0), app: result.text(row, 1), provider: result.text(row, 2),
        kind: result.isNull(row, 3) ? -1 : result.int16(row, 3),
        state: result.isNull(row, 4) ? -1 : result.int16(row, 4))
      values[key] = result.double(row, 5)
    }
  }

  /// The value of a row; zero if there is none.
  func value(
    _ what: String, app: String = "", provider: String = "", kind: Int16 = -1, state: Int16 = -1
  ) -> Double {
    values[Key(what: what, app: app, provider: provider, kind: kind, state: state)] ?? 0
  }
}

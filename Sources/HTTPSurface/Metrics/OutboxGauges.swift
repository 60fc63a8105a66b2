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

  /// What the database shows of one app's webhook.
  struct Webhook: Sendable, Equatable {
    var waiting = 0.0
    var oldestSeconds = 0.0
    var failingSeconds = 0.0
    var isStopped = false
    var dropped = 0.0
  }

  private(set) var values: [Key: Double] = [:]
  private(set) var webhooks: [String: Webhook] = [:]

  init(_ result: PostgresResult) {
    for row in 0..<result.rowCount {
      let key = Key(
        what: result.text(row, 0), app: result.text(row, 1), provider: result.text(row, 2),
        kind: result.isNull(row, 3) ? -1 : result.int16(row, 3),
        state: result.isNull(row, 4) ? -1 : result.int16(row, 4))
      values[key] = result.double(row, 5)
    }
  }

  /// Adds the rows of `push.observe_webhooks`.
  mutating func add(webhooks result: PostgresResult) {
    for row in 0..<result.rowCount {
      webhooks[result.text(row, 0)] = Webhook(
        waiting: result.double(row, 1), oldestSeconds: result.double(row, 2), failingSeconds: result.double(row, 3),
        isStopped: result.double(row, 4) > 0, dropped: result.double(row, 5))
    }
  }

  /// The value of a row; zero if there is none.
  func value(
    _ what: String, app: String = "", provider: String = "", kind: Int16 = -1, state: Int16 = -1
  ) -> Double {
    values[Key(what: what, app: app, provider: provider, kind: kind, state: state)] ?? 0
  }
}

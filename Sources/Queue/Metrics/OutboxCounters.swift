// Counters of the outbox's connections, for metrics.

internal import Runtime

/// Running totals of one `PostgresOutbox`.
public struct OutboxCounters: Sendable {
  /// What a round trip was for.
  public enum RoundTrip: String, Sendable, CaseIterable {
    case claim, settle, park, other

    static func of(_ statement: PostgresStatement) -> RoundTrip { RoundTrip(rawValue: statement.name) ?? .other }
  }

  /// The time from a statement to its answer.
  public private(set) var roundTrips = Dictionary(
    uniqueKeysWithValues: RoundTrip.allCases.map { ($0, Histogram(.latency)) })
  /// Number of connections that were opened again after a loss.
  public internal(set) var reconnects = 0

  public init() {}

  /// Adds the counters of another outbox.
  public mutating func add(_ other: OutboxCounters) {
    for (roundTrip, histogram) in other.roundTrips { roundTrips[roundTrip]?.add(histogram) }
    reconnects += other.reconnects
  }

  mutating func note(_ roundTrip: RoundTrip, _ duration: Nanoseconds) {
    roundTrips[roundTrip]?.observe(duration)
  }
}

// The two kinds of maintenance jobs.

/// Which jobs a gateway runs beside each other: one of each kind at a time.
public enum JobKind: Sendable, CaseIterable {
  /// Rings wait for it: retries that are due, and users whose phones were not heard.
  case urgent
  /// Everything else. It may take seconds: calls that end, what expires, what is deleted.
  case upkeep
}

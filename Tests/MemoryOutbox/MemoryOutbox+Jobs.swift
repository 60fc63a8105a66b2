// Maintenance jobs, done when they are due by the first gateway that asks.

internal import PushModel
public import Queue

extension MemoryOutbox {
  /// `push.job`: names and how often each is due, in microseconds.
  static let jobIntervals: [(name: String, every: Int64)] = [
    ("promote", 250_000), ("miss", 250_000), ("expire", 1_000_000), ("follow_up", 250_000),
    ("follow_up_urgent", 250_000), ("free", 500_000),
  ]
  private static let urgentJobs: Set<String> = ["promote", "follow_up_urgent", "free"]

  /// `push.take_job`: the job that has been due longest; its due time moves on. A job that is due later than its
  /// interval allows dates from before a step of the clock.
  public mutating func claimJob(_ gateway: Int32, _ kind: JobKind, at now: DatabaseTime) -> String? {
    guard gateways[gateway]?.isAlive ?? false else { return nil }
    let due = jobs.values.filter {
      Self.urgentJobs.contains($0.name) == (kind == .urgent)
        && ($0.dueAt <= now || $0.dueAt > now + $0.everyMicroseconds)
    }
    guard var job = due.min(by: { ($0.dueAt, $0.name) < ($1.dueAt, $1.name) }) else { return nil }
    job.dueAt = now + job.everyMicroseconds
    jobs[job.name] = job
    commit()
    return job.name
  }

  /// `push.run_job`: one bounded step of a job.
  public mutating func run(job name: String, at now: DatabaseTime) {
    switch name {
    case "promote": promote(at: now)
    case "free": freeClaims(at: now)
    case "miss": miss(at: now)
    case "expire": expire(at: now)
    case "follow_up", "follow_up_urgent": _ = followUp(isUrgent: Self.urgentJobs.contains(name), at: now)
    default: break
    }
  }

  /// Makes waiting deliveries ready that are due.
  private mutating func promote(at now: DatabaseTime) {
    for key in keys(where: { $0.state == .waiting && $0.dueAt <= now && $0.deadlineAt > now }) {
      guard var row = deliveries[key] else { continue }
      row.state = .ready
      deliveries[key] = row
      ringBell()
    }
    commit()
  }

  /// Calls that ring two seconds after their deadline become missed.
  private mutating func miss(at now: DatabaseTime) {
    let late = calls.values.filter {
      $0.state == .ringing && $0.deadlineAt + Limits.missedGrace <= now && !lockedCalls.contains($0.id)
    }
    for call in late.sorted(by: { $0.id < $1.id }) { close(call.id, .missed, reason: "missed", at: now) }
    commit()
  }

  /// Ends deliveries that are owed after their deadline as expired.
  private mutating func expire(at now: DatabaseTime) {
    for key in keys(where: { $0.state != .claimed && $0.deadlineAt <= now && !locked.contains($0.key) }) {
      guard let row = deliveries[key] else { continue }
      finish(row, .expired, reason: row.lastReason ?? "DeadlinePassed", at: now)
      if row.kind == PushKind.cancel.rawValue { note(key.outboxID, .untold, at: now) }
    }
    commit()
  }
}

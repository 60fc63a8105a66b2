// Which maintenance is due. Pure.

internal import Runtime

/// The leader's jobs and their intervals. Every job is safe to run twice and beside another leader.
struct OutboxMaintenance {
  private struct Job {
    var statement: PostgresStatement
    var interval: Nanoseconds
    var next = Instant(nanoseconds: .min)
  }

  private var jobs = [
    Job(statement: OutboxStatements.promote, interval: .milliseconds(250)),
    Job(statement: OutboxStatements.miss, interval: .milliseconds(250)),
    Job(statement: OutboxStatements.expire, interval: .seconds(1)),
    Job(statement: OutboxStatements.expireAll, interval: .seconds(15)),
    Job(statement: OutboxStatements.escalate, interval: .milliseconds(500)),
    Job(statement: OutboxStatements.reap, interval: .milliseconds(500)),
    Job(statement: OutboxStatements.ensurePartitions, interval: .seconds(3600)),
    Job(statement: OutboxStatements.dropPartitions, interval: .seconds(3600)),
    Job(statement: OutboxStatements.prune, interval: .seconds(10)),
  ]
  private var nextHeartbeat = Instant(nanoseconds: .min)
  private var nextTally = Instant(nanoseconds: .min)

  /// Whether this replica holds the lock that makes it the one to do this.
  var isLeader = false

  mutating func isHeartbeatDue(_ now: Instant, every interval: Nanoseconds) -> Bool {
    guard now >= nextHeartbeat else { return false }
    nextHeartbeat = now + interval
    return true
  }

  /// Whether the notes of `push.tally` are to be taken.
  func isTallyDue(_ now: Instant) -> Bool { isLeader && now >= nextTally }

  /// The notes were taken, which took `cost`: a tenth of the time at most is spent on it, also while a long transaction keeps
  /// what is gone in its way.
  mutating func didTally(cost: Nanoseconds, _ now: Instant) {
    nextTally = now + max(.milliseconds(500), cost * 10)
  }

  /// The statements to run now, each of which is then not due for its interval.
  mutating func dueJobs(_ now: Instant) -> [PostgresStatement] {
    guard isLeader else { return [] }
    var due: [PostgresStatement] = []
    for index in jobs.indices where now >= jobs[index].next {
      jobs[index].next = now + jobs[index].interval
      due.append(jobs[index].statement)
    }
    return due
  }
}

// A statement of the store: its effect on the server, and its answer to the machine.

import Dispatching
import MemoryOutbox
import Queue
import Runtime

/// One call of the store.
struct Statement {
  var action: DispatcherAction
  /// The gateway; nil before it has registered.
  var gateway: Int32?
  /// The name of the replica.
  var name: String
  /// When it was sent, on the replica's clock.
  var askedAt: Instant

  /// The answer of the server.
  enum Answer {
    case done
    case registered(Int32)
    case beat(Bool)
    case claimed([MemoryClaimedRow])
    case count(Int)
    case page(ClaimedPage)
    case settled(Set<DeliveryKey>)
    case ended(EndedRings)
    case job(String?)
  }

  /// The locks that a statement takes when it begins and holds until it ends.
  enum Locks {
    case claim(MemoryRunningClaim)
    case followUps(MemoryRunningFollowUps)
  }

  /// The number of the claim, if it is one.
  var claimNumber: Int32? {
    if case .claim(let number, _, _) = action { number } else { nil }
  }

  /// Whether it locks its gateway's row exclusively, and so waits for a running claim.
  var locksGateway: Bool {
    if case .forget = action { true } else { false }
  }

  /// Whether it is for the connection on which statements may wait a little.
  var isMaintenance: Bool {
    switch action {
    case .scan, .sync, .claimJob, .runJob, .followUp, .report: true
    case .write(_, .invalidate), .write(_, .hold), .write(_, .correct): true
    default: false
    }
  }

  /// Timeout of its answer; after it, the connection counts as dead.
  var patience: VirtualTime {
    switch action {
    case .claim: 3_000_000_000
    case .beat: 2_000_000_000
    default: 7_000_000_000
    }
  }

  /// Begins it. Returns its locks, if it takes any.
  func begin(_ outbox: inout MemoryOutbox, at now: DatabaseTime) -> Locks? {
    switch action {
    case .claim(let number, let allowances, let limits):
      guard let gateway else { return nil }
      return outbox.beginClaim(gateway, number, allowances, within: limits, at: now).map { .claim($0) }
    case .followUp(let kind, let max):
      return .followUps(outbox.beginFollowUps(isUrgent: kind == .urgent, max: max, at: now))
    case .runJob(_, "follow_up_urgent"): return .followUps(outbox.beginFollowUps(isUrgent: true, max: 50, at: now))
    case .runJob(_, "follow_up"): return .followUps(outbox.beginFollowUps(isUrgent: false, max: 50, at: now))
    default: return nil
    }
  }

  /// Executes it, unless it took locks when it began.
  func execute(_ outbox: inout MemoryOutbox, at now: DatabaseTime) throws(OutboxError) -> Answer {
    if case .register = action { return .registered(outbox.register(name: name, at: now)) }
    guard let gateway else { throw OutboxError(.unavailable, "this gateway has not registered") }
    switch action {
    case .beat(let mayReap): return .beat(outbox.beat(gateway, mayReap: mayReap, at: now))
    case .forget(let number): return .count(outbox.forget(gateway, number, at: now))
    case .scan(let from): return .page(outbox.claimed(by: gateway, from: from ?? 0, limit: 7))
    case .write(_, let write): return try execute(write, gateway, &outbox, at: now)
    case .lookUpEnded(let ids): return .ended(outbox.endedFor(ids))
    case .claim: return .claimed([])
    case .sync: outbox.sync()
    case .claimJob(let kind): return .job(outbox.claimJob(gateway, kind, at: now))
    case .runJob(_, let name): outbox.run(job: name, at: now)
    case .register, .followUp, .report, .send, .withdraw, .permit, .tell, .log, .logOpening: break
    }
    return .done
  }

  private func execute(
    _ write: OutboxWrite, _ gateway: Int32, _ outbox: inout MemoryOutbox, at now: DatabaseTime
  ) throws(OutboxError) -> Answer {
    switch write {
    case .settle(let settlements): .count(try outbox.settle(gateway, settlements, at: now))
    case .settledAmong(let settlements): .settled(outbox.settled(gateway, among: settlements.map(\.lease.key)))
    case .park(let parkings): .count(outbox.park(gateway, parkings, at: now))
    case .disown(let leases): .count(outbox.disown(gateway, leases, at: now))
    case .invalidate(let tokens): .count(tokens.count)
    case .hold(let holds): .count(holds.count)
    case .correct(let corrections): .count(corrections.count)
    }
  }

  /// The event for the machine that sent it.
  func event(_ result: Result<Answer, OutboxError>) -> DispatcherEvent? {
    func mapped<Value>(_ body: (Answer) -> Value?) -> Result<Value, OutboxError>? {
      switch result {
      case .success(let answer): body(answer).map { .success($0) }
      case .failure(let error): .failure(error)
      }
    }
    switch action {
    case .register:
      return mapped { _ in () }.map { .registered($0, askedAt: askedAt) }
    case .beat:
      return mapped { if case .beat(let beat) = $0 { beat } else { nil } }.map { .beaten($0, askedAt: askedAt) }
    case .claim(let number, _, _):
      return mapped { if case .claimed(let rows) = $0 { Claimed(rows, asked: askedAt) } else { nil } }
        .map { .claimed(number: number, $0) }
    case .forget(let number):
      return mapped { if case .count(let count) = $0 { count } else { nil } }.map { .forgotten(number: number, $0) }
    case .scan: return mapped { if case .page(let page) = $0 { page } else { nil } }.map { .scanned($0) }
    case .write(let batch, _):
      return mapped {
        switch $0 {
        case .count(let count): OutboxWriteAnswer.count(count)
        case .settled(let keys): OutboxWriteAnswer.settled(keys)
        default: nil
        }
      }.map { .written(batch: batch, $0) }
    case .lookUpEnded: return mapped { if case .ended(let ended) = $0 { ended } else { nil } }.map { .endedFound($0) }
    case .sync: return mapped { _ in () }.map { .synced($0) }
    case .claimJob(let kind):
      return mapped { if case .job(let name) = $0 { .some(name) } else { nil } }.map { .jobClaimed(kind, $0) }
    case .runJob(let kind, _): return mapped { _ in [Tally]() }.map { .jobRan(kind, $0) }
    case .followUp(let kind, _):
      return mapped { if case .count(let count) = $0 { count } else { nil } }.map { .followedUp(kind, $0) }
    case .report: return mapped { _ in () }.map { .reported($0) }
    case .send, .withdraw, .permit, .tell, .log, .logOpening: return nil
    }
  }
}

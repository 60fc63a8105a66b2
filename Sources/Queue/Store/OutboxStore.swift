// The outbox as the dispatcher sees it. `PostgresOutbox` is the real one; the simulation has its own. Store/ has the values that
// are passed.

/// Claims and settles deliveries for one gateway, which is one life of one process. Every call takes a batch. A claimed delivery is
/// ours until it is settled, parked, disowned or forgotten, or until this gateway is declared dead.
public protocol OutboxStore: Sendable {
  /// Registers a new gateway: a new owner of claims. The numbers of its claims start again.
  func register() async throws(OutboxError)
  /// Confirms that this gateway lives. Returns false if it was declared dead: its claims are free for others then, and it must
  /// register again.
  /// - Parameter mayReap: whether to declare gateways dead that were silent for too long, and free their claims.
  func beat(mayReap: Bool) async throws(OutboxError) -> Bool

  /// Claims at most the allowed number of each lane, earliest deadline first. Lanes with rings come before lanes without; otherwise
  /// lanes come in the order of the allowances. Deliveries whose deadline is too near are not claimed. Invites of calls that have
  /// ended may be claimed, too (`CallData.isOver`, `CallData.decliners`).
  /// - Parameter number: the number of the claim, which is written as the lease of each row.
  func claim(_ number: Int32, _ allowances: [LaneAllowance], within limits: ClaimLimits) async throws(OutboxError)
    -> Claimed
  /// Forgets a claim whose answer was lost: bars it if it has not begun, waits for it if it runs, and returns what it took.
  /// Returns how many rows went back.
  func forget(_ number: Int32) async throws(OutboxError) -> Int
  /// A page of the rows claimed in our name, from the start or where the previous page ended.
  func claimed(from page: Int64?) async throws(OutboxError) -> ClaimedPage
  /// Gives up rows that are claimed in our name and that we know nothing of: it is unknown what became of them. Pushes that people
  /// see end as dead, unless their app prefers two to none; the others are ready again. Returns how many were ours.
  func disown(_ leases: [DeliveryLease]) async throws(OutboxError) -> Int

  /// Writes outcomes, and waits until they are on the server's disk. Returns how many deliveries it has ended. Those are the ones that we
  /// have claimed, and the ones that we have handed on and nobody has claimed since. A push that a provider has accepted also ends if
  /// another gateway had it and nobody has it now. An invite that is void without a reason gets one from its call.
  func settle(_ settlements: [Settlement]) async throws(OutboxError) -> Int
  /// Which of these this gateway has written lately: for a batch of which `settle` wrote only a part, or whose answer was lost.
  func settled(among settlements: [Settlement]) async throws(OutboxError) -> Set<DeliveryKey>
  /// Returns deliveries to the outbox, to be tried later or at once, by anybody or by others (`Parking.isHandedOn`). Returns how many were still ours.
  func park(_ parkings: [Parking]) async throws(OutboxError) -> Int
  /// For whom these calls no longer ring.
  func endedFor(_ outboxIDs: [Int64]) async throws(OutboxError) -> EndedRings
  /// Waits until all claims that were answered before are on the server's disk. Claims themselves do not wait for it.
  func sync() async throws(OutboxError)
  /// Does what follows from ends of calls, declines, deletions and failed pushes. Returns how many of these it took; new deliveries
  /// may be ready then.
  /// - Parameters:
  ///   - kind: urgent: the next channels of invites that failed. Upkeep: the rest, such as cancels and missed calls.
  ///   - max: how many to take at most.
  func followUp(_ kind: JobKind, max: Int) async throws(OutboxError) -> Int

  /// Marks tokens dead unless they were registered since. If the lane is on hold, they are quarantined instead. Returns how many
  /// are newly dead.
  func invalidate(_ tokens: [TokenInvalidation]) async throws(OutboxError) -> Int
  /// Puts lanes on hold: their dead tokens are quarantined from now on, and those of the past window as well, until ops resume
  /// invalidation. Returns how many tokens live again.
  func hold(_ holds: [InvalidationHold]) async throws(OutboxError) -> Int
  /// Corrects the environments of registered tokens. Returns how many were wrong.
  func correct(_ environments: [EnvironmentCorrection]) async throws(OutboxError) -> Int
  /// Reports the conditions of this gateway's lanes, for ops. Called every second.
  func report(_ conditions: [LaneCondition]) async throws(OutboxError)

  /// The job of this kind that is due, if any. The gateway that asks first runs it.
  func claimJob(_ kind: JobKind) async throws(OutboxError) -> String?
  /// Runs one bounded step of a job. Returns what SQL did without a gateway, if that is the job.
  func run(_ kind: JobKind, job name: String) async throws(OutboxError) -> [Tally]
}

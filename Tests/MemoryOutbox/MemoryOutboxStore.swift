// `OutboxStore` over the outbox in memory: one gateway's side of a `MemoryOutboxServer`.

public import Queue
internal import Runtime

/// One gateway on a server in memory.
public actor MemoryOutboxStore: OutboxStore {
  private static let pageLength: Int64 = 1_000

  private let server: MemoryOutboxServer
  private let name: String
  private let clock: any GatewayClock
  private var id: Int32?

  init(server: MemoryOutboxServer, name: String, clock: any GatewayClock) {
    self.server = server
    self.name = name
    self.clock = clock
  }

  private func gateway() throws(OutboxError) -> Int32 {
    guard let id else { throw OutboxError(.unavailable, "this gateway has not registered") }
    return id
  }

  public func register() async throws(OutboxError) {
    let name = name
    id = try await server.execute { outbox, now in outbox.register(name: name, at: now) }
  }

  public func beat(mayReap: Bool) async throws(OutboxError) -> Bool {
    let id = try gateway()
    return try await server.execute { outbox, now in outbox.beat(id, mayReap: mayReap, at: now) }
  }

  public func claim(
    _ number: Int32, _ allowances: [LaneAllowance], within limits: ClaimLimits
  ) async throws(OutboxError) -> Claimed {
    let id = try gateway()
    let asked = clock.now()
    let rows = try await server.execute { outbox, now in
      outbox.beginClaim(id, number, allowances, within: limits, at: now).map { outbox.finish($0, at: now) } ?? []
    }
    return Claimed(rows, asked: asked)
  }

  public func forget(_ number: Int32) async throws(OutboxError) -> Int {
    let id = try gateway()
    return try await server.execute { outbox, now in outbox.forget(id, number, at: now) }
  }

  public func claimed(from page: Int64?) async throws(OutboxError) -> ClaimedPage {
    let id = try gateway()
    return try await server.execute { outbox, _ in outbox.claimed(by: id, from: page ?? 0, limit: Self.pageLength) }
  }

  public func settle(_ settlements: [Settlement]) async throws(OutboxError) -> Int {
    let id = try gateway()
    return try await server.execute { outbox, now throws(OutboxError) in try outbox.settle(id, settlements, at: now) }
  }

  public func settled(among settlements: [Settlement]) async throws(OutboxError) -> Set<DeliveryKey> {
    let id = try gateway()
    let keys = settlements.map(\.lease.key)
    return try await server.execute { outbox, _ in outbox.settled(id, among: keys) }
  }

  public func park(_ parkings: [Parking]) async throws(OutboxError) -> Int {
    let id = try gateway()
    return try await server.execute { outbox, now in outbox.park(id, parkings, at: now) }
  }

  public func disown(_ leases: [DeliveryLease]) async throws(OutboxError) -> Int {
    let id = try gateway()
    return try await server.execute { outbox, now in outbox.disown(id, leases, at: now) }
  }

  public func endedFor(_ outboxIDs: [Int64]) async throws(OutboxError) -> EndedRings {
    try await server.execute { outbox, _ in outbox.endedFor(outboxIDs) }
  }

  public func followUp(_ kind: JobKind, max: Int) async throws(OutboxError) -> Int {
    try await server.execute { outbox, now in outbox.followUp(isUrgent: kind == .urgent, max: max, at: now) }
  }

  public func sync() async throws(OutboxError) {
    _ = try gateway()
    try await server.execute { outbox, _ in outbox.sync() }
  }

  // Data for operators, and data about tokens, is not stored here.
  public func invalidate(_ tokens: [TokenInvalidation]) async throws(OutboxError) -> Int { tokens.count }
  public func hold(_ holds: [InvalidationHold]) async throws(OutboxError) -> Int { 0 }
  public func correct(_ environments: [EnvironmentCorrection]) async throws(OutboxError) -> Int { environments.count }
  public func report(_ conditions: [LaneCondition]) async throws(OutboxError) {}

  public func claimJob(_ kind: JobKind) async throws(OutboxError) -> String? {
    let id = try gateway()
    return try await server.execute { outbox, now in outbox.claimJob(id, kind, at: now) }
  }

  public func run(_ kind: JobKind, job name: String) async throws(OutboxError) -> [Tally] {
    try await server.execute { outbox, now in outbox.run(job: name, at: now) }
    return []
  }
}

// The behaviour that every `OutboxStore` must have, wherever it stores its deliveries. Each rule is one behaviour and
// is run by the tests of each store.
//
// The rules need no test framework: a broken rule throws. They are defined in the files OutboxStoreConformance+….

import PushModel
import Queue
import Runtime

/// A behaviour of every store.
public struct OutboxStoreRule: Sendable, CustomStringConvertible {
  /// The behaviour in a sentence.
  public let description: String
  /// Throws `OutboxRuleBroken` if the store behaves otherwise. The server must be empty and not be used by anything
  /// else.
  public let check: @Sendable (any OutboxUnderTest) async throws -> Void

  init(_ description: String, _ check: @escaping @Sendable (any OutboxUnderTest) async throws -> Void) {
    self.description = description
    self.check = check
  }
}

/// A rule was broken.
public struct OutboxRuleBroken: Error, CustomStringConvertible {
  public let description: String
}

/// The suite.
public enum OutboxStoreConformance {
  public static var rules: [OutboxStoreRule] {
    claiming + forgetting + settling + scanning + dying + crashing + jobs + following
  }
}

// MARK: - Parts of rules

/// Throws `OutboxRuleBroken` unless the two values are equal.
func expect<Value: Equatable>(
  _ found: Value, _ expected: Value, _ what: String, file: String = #fileID, line: Int = #line
) throws {
  if found == expected { return }
  throw OutboxRuleBroken(description: "\(file):\(line): \(what): \(found), expected \(expected)")
}

/// Throws `OutboxRuleBroken` unless the condition holds.
func expect(_ condition: Bool, _ what: String, file: String = #fileID, line: Int = #line) throws {
  if !condition { throw OutboxRuleBroken(description: "\(file):\(line): not so: \(what)") }
}

extension OutboxUnderTest {
  /// A gateway that has registered.
  func gateway() async throws -> any OutboxStore {
    let gateway = try await makeGateway()
    try await gateway.register()
    return gateway
  }

  /// Both lanes with the same room.
  func allowances(_ limit: Int32 = 1000, background: Int32? = nil) -> [LaneAllowance] {
    lanes.map { LaneAllowance(lane: $0, limit: limit, background: background) }
  }

  /// Enqueues a call in the first lane. It rings for longer than a rule takes.
  func call(devices: Int = 1, seconds: Int = 300) async throws -> Int64 {
    try await enqueue(.invite, lane: lanes[0], devices: devices, seconds: seconds)
  }

  /// Takes all follow-ups that are due.
  func followUp(_ gateway: any OutboxStore) async throws {
    for kind in JobKind.allCases { while try await gateway.followUp(kind, max: 10) > 0 {} }
  }

  /// Claims all deliveries.
  func claim(_ number: Int32, _ gateway: any OutboxStore) async throws -> [Delivery] {
    try await gateway.claim(number, allowances(), within: ClaimLimits()).deliveries
      .sorted { ($0.key.outboxID, $0.key.pushNumber) < ($1.key.outboxID, $1.key.pushNumber) }
  }

  /// Claims all deliveries, also of lanes that have rings: their background comes only with the second claim.
  func claimAll(from number: Int32, _ gateway: any OutboxStore) async throws -> [Delivery] {
    try await claim(number, gateway) + claim(number + 1, gateway)
  }

  /// The owed deliveries of some calls.
  func owed(of outboxIDs: Int64...) async throws -> [OwedDelivery] {
    try await owed().filter { outboxIDs.contains($0.key.outboxID) }
  }

  /// The states of the owed deliveries of some calls.
  func states(of outboxIDs: Int64...) async throws -> [OwedDelivery.State] {
    try await owed().filter { outboxIDs.contains($0.key.outboxID) }.map(\.state)
  }

  /// The ended deliveries of some calls.
  func ended(of outboxIDs: Int64...) async throws -> [EndedDelivery] {
    try await ended().filter { outboxIDs.contains($0.key.outboxID) }
  }

  /// Makes another gateway declare a gateway dead that sends no more heartbeats, and free what it had.
  func reap(by other: any OutboxStore) async throws {
    try await beat(other, mayReap: true)
    _ = try await other.run(.urgent, job: "free")
  }

  /// A time longer than the silence passes in which only one gateway sends heartbeats, often enough to leave no gap on a slow machine.
  func beat(_ gateway: any OutboxStore, mayReap: Bool) async throws {
    for _ in 0..<10 {
      try await advance(by: silence * 2 / 15)
      _ = try await gateway.beat(mayReap: mayReap)
    }
  }

  /// The time between two checks of a silent gateway passes, then a check is made.
  func lookAgain(_ gateway: any OutboxStore) async throws {
    try await advance(by: silence / 5)
    _ = try await gateway.beat(mayReap: true)
    _ = try await gateway.run(.urgent, job: "free")
  }

  /// A time longer than the silence passes in which a gateway sends heartbeats and declares no gateway dead.
  func listen(_ gateway: any OutboxStore) async throws {
    for _ in 0..<4 {
      try await advance(by: silence / 3)
      _ = try await gateway.beat(mayReap: false)
    }
  }

  /// Does every job that is due. On a slow machine some are due again before the others are done, but those come first.
  func runJobs(_ gateway: any OutboxStore) async throws {
    for kind in JobKind.allCases {
      for _ in 0..<40 {
        guard let job = try await gateway.claimJob(kind) else { break }
        _ = try await gateway.run(kind, job: job)
      }
    }
  }
}

extension Settlement {
  /// A push that its provider accepted.
  convenience init(delivered delivery: Delivery, lease: Int32? = nil, place: DeliveryPlace? = nil) {
    let key = delivery.key
    self.init(
      delivery, lease: lease.map { DeliveryLease(key, lease: $0) },
      place: place,
      outcome: .delivered, attempts: delivery.attempt, status: 200, providerMessageID: "id")
  }
}

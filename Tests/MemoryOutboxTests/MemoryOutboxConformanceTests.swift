// Runs the rules of every store on the outbox in memory, so that results of a simulation are also valid for Postgres.

import MemoryOutbox
import PushModel
import Queue
import Runtime
import Synchronization
import TestSupport
import Testing

/// Every reading is a microsecond later than the one before: no time passes but by the rules.
private final class CountingClock: GatewayClock {
  private let readings = Atomic<Int64>(0)

  func now() -> Instant {
    Instant(nanoseconds: 0) + .microseconds(readings.add(1, ordering: .relaxed).newValue)
  }
  func wallMilliseconds() -> Int64 { 0 }
}

/// A server in memory with two lanes.
private struct MemoryOutboxUnderTest: OutboxUnderTest {
  let server: MemoryOutboxServer
  let lanes: [Int16] = [1, 2]
  let silence = Nanoseconds.microseconds(MemoryOutbox.Limits.silence)

  init() {
    var outbox = MemoryOutbox()
    for (lane, app) in zip(lanes, ["one", "two"]) {
      outbox.apps[app] = MemoryApp(name: app)
      outbox.lanes[lane] = MemoryLane(id: lane, app: app, provider: "fcm")
    }
    server = MemoryOutboxServer(outbox, clock: CountingClock())
  }

  func makeGateway() async throws -> any OutboxStore { server.makeGateway() }

  func enqueue(_ kind: PushKind, lane: Int16, devices: Int, seconds: Int) async throws -> Int64 {
    let recipients = (0..<devices).map { device in
      let channel = MemoryChannel(lane: lane, token: "token-\(device)")
      return MemoryRecipient(userID: "user-\(device)", channels: [channel], missedCall: channel)
    }
    return try await server.execute { outbox, now in
      let app = outbox.lanes[lane]!.app
      let life = Int64(seconds) * 1_000_000
      return kind == .invite
        ? outbox.enqueueCall(app: app, callID: "call", payload: "{}", recipients: recipients, ring: life, at: now)
        : outbox.enqueueNotification(
          app: app, callID: "message", payload: "{}", recipients: recipients, life: life, at: now)
    }
  }

  func end(_ outboxID: Int64) async throws {
    try await server.execute { outbox, now in _ = outbox.end(outboxID, at: now) }
  }

  func decline(_ outboxID: Int64, device: Int) async throws {
    try await server.execute { outbox, now in _ = outbox.decline(outboxID, by: "user-\(device)", at: now) }
  }

  func setAtLeastOnce(_ isAtLeastOnce: Bool, lane: Int16) async throws {
    try await server.execute { outbox, _ in outbox.apps[outbox.lanes[lane]!.app]!.isAtLeastOnce = isAtLeastOnce }
  }

  func owed() async throws -> [OwedDelivery] {
    try await server.execute { outbox, _ in
      outbox.deliveries.values.map { row in
        let state: OwedDelivery.State =
          switch row.state {
          case .ready: .ready
          case .claimed: .claimed(lease: row.lease)
          case .waiting: .waiting
          }
        return OwedDelivery(
          key: row.key, kind: PushKind(rawValue: row.kind)!, state: state, attempts: row.attempt,
          crashes: Int(row.crashes))
      }
    }.sorted { ($0.key.outboxID, $0.key.pushNumber) < ($1.key.outboxID, $1.key.pushNumber) }
  }

  func ended() async throws -> [EndedDelivery] {
    try await server.execute { outbox, _ in
      outbox.history.values.joined().map {
        EndedDelivery(key: $0.key, outcome: $0.outcome, attempts: $0.attempts, reason: $0.reason)
      }
    }.sorted { ($0.key.outboxID, $0.key.pushNumber) < ($1.key.outboxID, $1.key.pushNumber) }
  }

  func advance(by duration: Nanoseconds) async throws { await server.advance(by: duration) }

  func crash(losing body: () async throws -> Void) async throws {
    try await server.execute { outbox, _ in outbox.sync() }
    try await body()
    try await server.execute { outbox, _ in _ = outbox.crash(keeping: 0) }
  }
}

@Suite struct MemoryOutboxConformanceTests {
  @Test(arguments: OutboxStoreConformance.rules) func keepsTheRule(_ rule: OutboxStoreRule) async throws {
    try await rule.check(MemoryOutboxUnderTest())
  }
}

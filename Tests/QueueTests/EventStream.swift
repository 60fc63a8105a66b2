// The events of a store, for tests to await.

import Queue
import Synchronization
import TestTime

/// A store's events, to be awaited one after the other. Only one task may wait at a time.
///
/// Every wait throws `CancellationError` when the test's time is over.
final class EventStream: Sendable {
  private let unread = Mutex<[OutboxEvent]>([])
  private let bells = Mutex(0)

  func report(_ event: OutboxEvent) { unread.withLock { $0.append(event) } }

  /// Waits until `count` outbox notifications have arrived since the start. Returns false if they have not within `limit`; without
  /// one, a wait of a minute fails.
  @discardableResult
  func bells(_ count: Int, within limit: Duration? = nil) async throws -> Bool {
    try await poll(within: limit) {
      while bells.withLock({ $0 }) < count, next() != nil {}
      return bells.withLock { $0 } >= count
    }
  }

  /// Waits in the same way until an event satisfies `isWanted`. Earlier events are discarded.
  @discardableResult
  func wait(within limit: Duration? = nil, for isWanted: (OutboxEvent) -> Bool) async throws -> Bool {
    try await poll(within: limit) {
      while let event = next() {
        if isWanted(event) { return true }
      }
      return false
    }
  }

  func available() async throws { try await wait { if case .available = $0 { true } else { false } } }
  func unavailable() async throws { try await wait { if case .unavailable = $0 { true } else { false } } }

  /// Waits until the store cannot be reached, with a reason that contains these words.
  func unavailable(because words: String) async throws {
    try await wait { if case .unavailable(let reason) = $0 { reason.contains(words) } else { false } }
  }

  private func next() -> OutboxEvent? {
    let event = unread.withLock { $0.isEmpty ? nil : $0.removeFirst() }
    if case .bell = event { bells.withLock { $0 += 1 } }
    return event
  }

  private func poll(within limit: Duration?, until isTrue: () -> Bool) async throws -> Bool {
    do {
      try await eventually("the event", within: limit ?? .seconds(60), every: .milliseconds(2)) { isTrue() }
      return true
    } catch let error as NotYet {
      guard limit != nil else { throw error }
      return false
    }
  }
}

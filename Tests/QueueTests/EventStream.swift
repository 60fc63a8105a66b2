// What a store tells its owner, as tests await it.

import Queue
import Synchronization

/// A store's events, to be awaited one after the other. One may wait at a time.
final class EventStream: Sendable {
  let stream: AsyncStream<OutboxEvent>
  private let continuation: AsyncStream<OutboxEvent>.Continuation
  private let bells = Mutex(0)

  init() { (stream, continuation) = AsyncStream.makeStream() }

  func report(_ event: OutboxEvent) {
    if case .bell = event { bells.withLock { $0 += 1 } }
    continuation.yield(event)
  }

  /// Waits until the bell has rung so often since the start.
  func bells(_ count: Int) async {
    var iterator = stream.makeAsyncIterator()
    while bells.withLock({ $0 }) < count { _ = await iterator.next() }
  }

  /// Waits until an event satisfies `isWanted`; those before are gone.
  func wait(for isWanted: (OutboxEvent) -> Bool) async {
    for await event in stream where isWanted(event) { return }
  }

  func available() async { await wait { if case .available = $0 { true } else { false } } }
  func unavailable() async { await wait { if case .unavailable = $0 { true } else { false } } }

  /// Waits until the store cannot be reached for a reason that has these words.
  func unavailable(because words: String) async {
    await wait { if case .unavailable(let reason) = $0 { reason.contains(words) } else { false } }
  }
}

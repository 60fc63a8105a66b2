// Visible pushes, from their claim until it is on the server's disk. Pure.
//
// Claims do not wait for the disk. A server that crashes may lose a claim, and then another gateway may claim the push and send it
// as well. So a visible push is sent only when its claim can no longer be lost. Rings do not wait. At most one sync is under way.
// Deliveries claimed meanwhile wait for the next one. A sync that fails says that claims may have been lost.

internal import Runtime

/// Collects deliveries, and decides when to sync.
struct DiskWait {
  /// The minimum time between two syncs, so that deliveries are collected.
  private static let pause = Nanoseconds.milliseconds(2)

  private var waiting: [HeldDelivery] = []
  private var asked: [HeldDelivery] = []
  private var notBefore = Instant(nanoseconds: .min)

  /// When to sync next; distant future for never, and while a sync is under way.
  var due: Instant { waiting.isEmpty || !asked.isEmpty ? .distantFuture : notBefore }

  /// Adds a delivery whose claim was answered and may not be on the disk.
  mutating func add(_ entry: HeldDelivery) { waiting.append(entry) }

  /// A sync begins for all deliveries that wait now.
  mutating func ask() {
    (asked, waiting) = (waiting, [])
  }

  /// The sync has finished. Returns the deliveries it was for.
  mutating func didAnswer(_ now: Instant) -> [HeldDelivery] {
    defer { asked = [] }
    notBefore = now + Self.pause
    return asked
  }

  /// The sync has failed. Returns all deliveries, because their claims may be lost.
  mutating func didFail() -> [HeldDelivery] {
    defer { (asked, waiting) = ([], []) }
    return asked + waiting
  }
}

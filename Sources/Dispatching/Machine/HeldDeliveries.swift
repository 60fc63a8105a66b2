// The deliveries that this gateway holds, by slot and by key. Pure.

internal import Queue
internal import Runtime

/// The deliveries that rows claimed in our name are compared with.
struct HeldDeliveries {
  private var slots: [DeliveryKey: Int] = [:]
  private var entries = SlotTable<HeldDelivery>()

  /// Number of deliveries, including those being written.
  var count: Int { entries.count }

  /// The delivery in this slot.
  subscript(slot: Int) -> HeldDelivery? { entries[slot] }

  subscript(key: DeliveryKey) -> HeldDelivery? { slots[key].flatMap { entries[$0] } }

  /// All deliveries, including those being written. O(n).
  var all: [HeldDelivery] { entries.occupied.compactMap { entries[$0] } }

  /// Inserts a delivery under its key. If one is held under that key, nothing changes and that one is returned.
  mutating func insert(_ entry: HeldDelivery) -> HeldDelivery? {
    if let former = self[entry.key] { return former }
    replace(with: entry)
    return nil
  }

  /// Inserts a delivery under its key, in place of the one that was held under that key.
  mutating func replace(with entry: HeldDelivery) {
    entry.slot = entries.insert(entry)
    slots[entry.key] = entry.slot
  }

  mutating func remove(_ entry: HeldDelivery) {
    guard entries[entry.slot] === entry else { return }
    entries.remove(entry.slot)
    if slots[entry.key] == entry.slot { slots[entry.key] = nil }
  }
}

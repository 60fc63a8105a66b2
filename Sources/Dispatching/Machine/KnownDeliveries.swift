// The deliveries that this gateway knows: those it holds, by slot and by key, and those it settled lately, by key. Pure.

internal import Queue
internal import Runtime

/// The deliveries that rows claimed in our name are compared with.
struct KnownDeliveries {
  enum Known {
    case held(HeldDelivery)
    case settled(SettledDelivery)
  }

  /// The slots of held deliveries.
  private var slots: [DeliveryKey: Int] = [:]
  private var held = SlotTable<HeldDelivery>()
  private var memory: SettledMemory

  init(limits: SettledMemory.Limits = SettledMemory.Limits()) {
    memory = SettledMemory(limits: limits)
  }

  /// Number of held deliveries, including those being written.
  var heldCount: Int { held.count }
  /// Number of remembered settlements.
  var settledCount: Int { memory.count }
  var isEmpty: Bool { slots.isEmpty && memory.count == 0 }

  /// The delivery in this slot.
  subscript(slot: Int) -> HeldDelivery? { held[slot] }

  subscript(key: DeliveryKey) -> Known? {
    if let slot = slots[key] { return held[slot].map(Known.held) }
    return memory[key].map(Known.settled)
  }

  /// All held deliveries, including those being written. O(n).
  var allHeld: [HeldDelivery] { held.occupied.compactMap { held[$0] } }

  /// The keys of all held deliveries and remembered settlements. O(n).
  var keys: [DeliveryKey] { slots.keys + memory.keys }

  /// The keys of all deliveries that no other gateway can have claimed after this one, as long as the database has it as alive:
  /// those that were settled, and those that are held and were never returned. After a crash the database may show an earlier
  /// owner for them. A delivery that may have been returned is not among them, because it may belong to another gateway now. O(n).
  var keysTakenOver: [DeliveryKey] {
    slots.compactMap { key, slot in held[slot].map(\.isSurelyOurs) ?? false ? key : nil } + memory.keys
  }

  /// Inserts a delivery under its key. If the key is known already, nothing changes and the known entry is returned.
  mutating func insert(_ entry: HeldDelivery) -> Known? {
    if let settled = memory[entry.key] { return .settled(settled) }
    let slot = held.insert(entry)
    if let former = slots.updateValue(slot, forKey: entry.key) {
      slots[entry.key] = former
      held.remove(slot)
      return held[former].map(Known.held)
    }
    entry.slot = slot
    return nil
  }

  /// Inserts a delivery under its key, and replaces what was known under that key.
  mutating func replace(with entry: HeldDelivery) {
    entry.slot = held.insert(entry)
    if slots.updateValue(entry.slot, forKey: entry.key) == nil { memory.remove(entry.key) }
  }

  /// Removes a held delivery.
  mutating func remove(_ entry: HeldDelivery) {
    guard held[entry.slot] === entry else { return }
    held.remove(entry.slot)
    if slots[entry.key] == entry.slot { slots[entry.key] = nil }
  }

  /// Replaces a held delivery that is settled by its remembered settlement.
  mutating func remember(_ entry: HeldDelivery, _ now: Instant) {
    guard held[entry.slot] === entry else { return }
    held.remove(entry.slot)
    guard let index = slots.index(forKey: entry.key), slots.values[index] == entry.slot else { return }
    slots.remove(at: index)
    memory.insert(entry.settlement, lane: entry.lane, now)
  }

  /// Forgets settlements whose time is over.
  mutating func forgetOld(_ now: Instant, isStoreAvailable: Bool) {
    memory.advance(now, isStoreAvailable: isStoreAvailable)
    while memory.forgetNext() != nil {}
  }
}

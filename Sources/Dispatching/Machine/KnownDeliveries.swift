// The deliveries that this gateway knows: those it holds, by slot and by key, and those it has settled lately, by key. Pure.

internal import Queue
internal import Runtime

/// What a row claimed in our name is compared with.
struct KnownDeliveries {
  enum Known {
    case held(HeldDelivery)
    case settled(SettledDelivery)
  }

  /// The slots of what is held.
  private var slots: [DeliveryKey: Int] = [:]
  private var held = SlotTable<HeldDelivery>()
  private var memory: SettledMemory

  init(limits: SettledMemory.Limits = SettledMemory.Limits()) {
    memory = SettledMemory(limits: limits)
  }

  /// How many are held, those included that are being written.
  var heldCount: Int { held.count }
  /// How many settlements are remembered.
  var settledCount: Int { memory.count }
  var isEmpty: Bool { slots.isEmpty && memory.count == 0 }

  /// The delivery with this number.
  subscript(slot: Int) -> HeldDelivery? { held[slot] }

  subscript(key: DeliveryKey) -> Known? {
    if let slot = slots[key] { return held[slot].map(Known.held) }
    return memory[key].map(Known.settled)
  }

  /// Every delivery that is held, those included that are being written. O(n).
  var allHeld: [HeldDelivery] { held.occupied.compactMap { held[$0] } }

  /// The keys of all that are held or remembered. O(n).
  var keys: [DeliveryKey] { slots.keys + memory.keys }

  /// The keys of all that nobody can have claimed later than this gateway did, as long as the database calls it alive: what was
  /// settled, and what is held and was never given back. After a crash the database may call these another's, of before; what
  /// may have been given back may be another's of now. O(n).
  var keysTakenOver: [DeliveryKey] {
    slots.compactMap { key, slot in held[slot].map(\.isSurelyOurs) ?? false ? key : nil } + memory.keys
  }

  /// Takes a delivery in under its key, unless that is known already: then nothing is changed, and what is known comes back.
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

  /// Takes a delivery in under its key, in place of whatever was known under it.
  mutating func replace(with entry: HeldDelivery) {
    entry.slot = held.insert(entry)
    if slots.updateValue(entry.slot, forKey: entry.key) == nil { memory.remove(entry.key) }
  }

  /// Nothing more is to be known of a delivery that was held.
  mutating func remove(_ entry: HeldDelivery) {
    guard held[entry.slot] === entry else { return }
    held.remove(entry.slot)
    if slots[entry.key] == entry.slot { slots[entry.key] = nil }
  }

  /// A delivery that was held is settled: from now on that is remembered.
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

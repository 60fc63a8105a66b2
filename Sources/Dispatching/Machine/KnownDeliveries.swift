// The deliveries that this gateway knows: those it holds, by slot, and those it has settled lately; all of them by key. Pure.

internal import Queue
internal import Runtime

/// What a row claimed in our name is compared with.
///
/// One index serves both, so that a delivery costs one insertion, one change and one removal of it.
struct KnownDeliveries {
  enum Known {
    case held(HeldDelivery)
    case settled(SettledDelivery)
  }

  private enum Place {
    case held(Int)
    case settled(SettledMemory.Position)
  }

  private var places: [DeliveryKey: Place] = [:]
  private var held = SlotTable<HeldDelivery>()
  private var memory: SettledMemory

  init(limits: SettledMemory.Limits = SettledMemory.Limits()) {
    memory = SettledMemory(limits: limits)
  }

  /// How many are held, those included that are being written.
  var heldCount: Int { held.count }
  /// How many settlements are remembered.
  var settledCount: Int { memory.count }
  var isEmpty: Bool { places.isEmpty }

  /// The delivery with this number.
  subscript(slot: Int) -> HeldDelivery? { held[slot] }

  subscript(key: DeliveryKey) -> Known? {
    switch places[key] {
    case .held(let slot): held[slot].map(Known.held)
    case .settled(let position): memory[position].map(Known.settled)
    case nil: nil
    }
  }

  /// Every delivery that is held, those included that are being written. O(n).
  var allHeld: [HeldDelivery] { held.occupied.compactMap { held[$0] } }

  /// The keys of all that are held or remembered. O(n).
  var keys: [DeliveryKey] { Array(places.keys) }

  /// The keys of all that nobody can have claimed later than this gateway did, as long as the database calls it alive: what was
  /// settled, and what is held and was never given back. After a crash the database may call these another's, of before; what
  /// may have been given back may be another's of now. O(n).
  var keysTakenOver: [DeliveryKey] {
    places.compactMap { key, place in
      switch place {
      case .held(let slot): held[slot].map(\.isSurelyOurs) ?? false ? key : nil
      case .settled: key
      }
    }
  }

  /// Takes a delivery in under its key, unless that is known already: then nothing is changed, and what is known comes back.
  mutating func insert(_ entry: HeldDelivery) -> Known? {
    let slot = held.insert(entry)
    if let former = places.updateValue(.held(slot), forKey: entry.key) {
      places[entry.key] = former
      held.remove(slot)
      return self[entry.key]
    }
    entry.slot = slot
    return nil
  }

  /// Takes a delivery in under its key, in place of whatever was known under it.
  mutating func replace(with entry: HeldDelivery) {
    entry.slot = held.insert(entry)
    if case .settled(let position) = places.updateValue(.held(entry.slot), forKey: entry.key) {
      memory.remove(position)
    }
  }

  /// Nothing more is to be known of a delivery that was held.
  mutating func remove(_ entry: HeldDelivery) {
    guard held[entry.slot] === entry else { return }
    held.remove(entry.slot)
    if case .held(entry.slot) = places[entry.key] { places[entry.key] = nil }
  }

  /// A delivery that was held is settled: from now on that is remembered.
  mutating func remember(_ entry: HeldDelivery, _ now: Instant) {
    guard held[entry.slot] === entry else { return }
    held.remove(entry.slot)
    // Changed in place: looked up once.
    guard let index = places.index(forKey: entry.key), case .held(entry.slot) = places.values[index] else { return }
    places.values[index] = .settled(memory.insert(entry.settlement, lane: entry.lane, now))
  }

  /// Forgets settlements whose time is over.
  mutating func forgetOld(_ now: Instant, isStoreAvailable: Bool) {
    memory.advance(now, isStoreAvailable: isStoreAvailable)
    while let key = memory.forgetNext() { places[key] = nil }
  }
}

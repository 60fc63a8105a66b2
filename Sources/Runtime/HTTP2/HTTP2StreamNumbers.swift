// Maps stream ids to slots. Ids are assigned in order, so an array of slots is enough.

/// Maps the ids of a client's streams to slots.
struct HTTP2StreamNumbers {
  enum Place: Equatable {
    case open(Int)
    case closed
    /// The id was never one of ours.
    case idle
  }

  private static let none: Int32 = -1

  /// The slots of the streams from `firstID` on, beginning at index `start`. Slots of closed streams are `none`.
  private var slots: [Int32] = []
  private var start = 0
  /// Wider than an id, because the position after the last id must fit.
  private var firstID: Int64

  private var nextID: Int64 { firstID + 2 * Int64(slots.count - start) }

  /// - Parameter firstID: the first id to assign; odd.
  init(firstID: Int32 = 1) {
    precondition(firstID > 0 && firstID & 1 == 1, "a client's streams have odd ids")
    self.firstID = Int64(firstID)
  }

  /// Whether ids for more streams are left (RFC 9113 §5.1.1).
  var areLeft: Bool { nextID <= Int64(Int32.max) }

  /// Assigns the next id to a slot. An id must be left.
  mutating func add(_ slot: Int) -> Int32 {
    let id = Int32(nextID)
    slots.append(Int32(slot))
    return id
  }

  subscript(id: Int32) -> Place {
    guard id & 1 == 1, Int64(id) < nextID else { return .idle }
    guard id >= firstID else { return .closed }
    let slot = slots[place(of: id)]
    return slot == Self.none ? .closed : .open(Int(slot))
  }

  mutating func remove(_ id: Int32) {
    slots[place(of: id)] = Self.none
    while start < slots.count, slots[start] == Self.none {
      start += 1
      firstID += 2
    }
    if start == slots.count {
      slots.removeAll(keepingCapacity: true)
      start = 0
    } else if start >= 4096, start * 2 > slots.count {
      slots.removeFirst(start)
      start = 0
    }
  }

  private func place(of id: Int32) -> Int { start + Int(Int64(id) - firstID) / 2 }
}

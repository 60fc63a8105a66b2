// Tests of numbered slots for requests in flight.

import Runtime
import Testing

@Suite("Slot table") struct SlotTableTests {
  @Test
  func `an element keeps its number until it is removed, and the number is used again`() {
    var table = SlotTable<String>()
    let slots = ["a", "b", "c"].map { table.insert($0) }
    #expect(Set(slots).count == 3)
    #expect(slots.map { table[$0] } == ["a", "b", "c"])
    #expect(table.remove(slots[1]) == "b")
    #expect(table[slots[1]] == nil)
    #expect(table.count == 2)
    #expect(table.insert("d") == slots[1])
    #expect(table.occupied == slots.sorted())
  }

  @Test
  func `a missing element is nil, and removing it changes nothing`() {
    var table = SlotTable<Int>()
    #expect(table[0] == nil)
    #expect(table[-1] == nil)
    #expect(table.remove(0) == nil)
    let slot = table.insert(1)
    #expect(table.remove(slot) == 1)
    #expect(table.remove(slot) == nil)
    #expect(table.isEmpty)
    // A slot removed twice is not assigned twice.
    #expect(table.insert(2) != table.insert(3))
  }

  @Test
  func `an element can be changed in place`() {
    var table = SlotTable<[Int]>()
    let slot = table.insert([1])
    table[slot]?.append(2)
    #expect(table[slot] == [1, 2])
    #expect(table.count == 1)
  }
}

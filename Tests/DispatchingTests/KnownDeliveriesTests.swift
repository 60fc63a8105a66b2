// Tests of the deliveries that the machine holds or remembers, found by their keys.

import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

private let start = MachineRig.start

@Suite("Known deliveries") struct KnownDeliveriesTests {
  @Test("a delivery is found by its key from its claim until it is forgotten")
  func life() {
    var known = KnownDeliveries()
    known.forgetOld(start, isStoreAvailable: true)
    let entry = HeldDelivery(.part(1), lane: 0)
    let former = known.insert(entry)
    guard case nil = former else { return #expect(Bool(false), "it is new") }
    #expect(known[entry.slot] === entry)
    guard case .held(let found) = known[entry.key] else { return #expect(Bool(false), "it is held") }
    #expect(found === entry)
    guard case .held? = known.insert(HeldDelivery(.part(1), lane: 0)) else {
      return #expect(Bool(false), "its key is taken")
    }
    #expect(known.heldCount == 1)
    entry.stage = .settling(.part(1))
    known.remember(entry, start)
    #expect(known.heldCount == 0)
    guard case .settled(let remembered) = known[entry.key] else { return #expect(Bool(false), "it is remembered") }
    #expect(remembered.providerMessageID == "m1")
    known.forgetOld(start + .seconds(30), isStoreAvailable: true)
    #expect(known.isEmpty)
  }

  @Test("the end of a delivery that was claimed again does not affect the new one")
  func successor() {
    var known = KnownDeliveries()
    let former = HeldDelivery(.part(1), lane: 0)
    _ = known.insert(former)
    let next = HeldDelivery(.part(1), lane: 0)
    known.replace(with: next)
    known.remove(former)
    known.remove(former)
    guard case .held(let found) = known[next.key] else { return #expect(Bool(false), "the successor is known") }
    #expect(found === next)
    #expect(known.heldCount == 1)
  }
}

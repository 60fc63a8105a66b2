// Tests of the table of deliveries that a gateway holds: slots that are used again, and what is known by which key.

import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Held deliveries") struct HeldDeliveriesTests {
  private func held(_ id: Int64, madeAt microseconds: Int64 = 0) -> HeldDelivery {
    HeldDelivery(
      Delivery(
        lease: DeliveryLease(outboxID: id, pushNumber: 0, lease: 1, createdAtMicroseconds: microseconds), lane: 1,
        attempt: 1, kind: .invite, environment: .production, platform: .unknown, userID: [], token: [], locale: nil,
        callKind: [], callID: [], payload: [], createdAtMicroseconds: microseconds, deadlineAtMicroseconds: 0,
        deadline: .distantFuture), lane: 0)
  }

  @Test("a delivery is found by its slot and by its key until it is removed")
  func life() {
    var deliveries = HeldDeliveries()
    let entry = held(1)
    #expect(deliveries.insert(entry) == nil)
    #expect(deliveries[entry.slot] === entry)
    #expect(deliveries[entry.key] === entry)
    #expect(deliveries.insert(held(1)) === entry, "its key is taken")
    #expect(deliveries.count == 1)
    deliveries.remove(entry)
    #expect(deliveries[entry.key] == nil)
    #expect(deliveries.count == 0)
  }

  @Test("the end of a delivery that was claimed again does not affect the new one")
  func successor() {
    var deliveries = HeldDeliveries()
    let former = held(1)
    _ = deliveries.insert(former)
    let next = held(1)
    deliveries.replace(with: next)
    deliveries.remove(former)
    deliveries.remove(former)
    #expect(deliveries[next.key] === next)
    #expect(deliveries.count == 1)
  }

  @Test("deliveries with the same numbers are different if their rows were made at different times")
  func identity() {
    var deliveries = HeldDeliveries()
    let (one, other) = (held(1, madeAt: 5), held(1, madeAt: 6))
    #expect(deliveries.insert(one) == nil)
    #expect(deliveries.insert(other) == nil)
    #expect(deliveries[one.key] === one && deliveries[other.key] === other)
    deliveries.remove(one)
    #expect(deliveries[other.key] === other)
  }
}

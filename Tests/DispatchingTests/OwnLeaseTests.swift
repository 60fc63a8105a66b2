// Tests of the time for which a gateway may send: it counts from its heartbeats.

import Queue
import Runtime
import Testing

@testable import Dispatching

private let start = MachineRig.start

@Suite("Own lease") struct OwnLeaseTests {
  @Test("it counts from the time the heartbeat was sent, and never goes back")
  func confirm() {
    var lease = OwnLease(time: .seconds(2))
    #expect(!lease.isValid(start))
    lease.confirm(askedAt: start)
    #expect(lease.isValid(start + .milliseconds(1999)))
    #expect(!lease.isValid(start + .seconds(2)))
    lease.confirm(askedAt: start - .seconds(1))
    #expect(lease.until == start + .seconds(2))
  }

  @Test("an expiry is reported once")
  func lapse() {
    var lease = OwnLease(time: .seconds(2))
    #expect(lease.noteLapse(start) == false, "it never held")
    lease.confirm(askedAt: start)
    #expect(lease.noteLapse(start) == false)
    #expect(lease.lapse == start + .seconds(2))
    #expect(lease.noteLapse(start + .seconds(2)) == true)
    #expect(lease.noteLapse(start + .seconds(3)) == false)
    #expect(lease.lapse == .distantFuture)
  }
}

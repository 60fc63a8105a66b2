// Tests that visible pushes wait until their claim is on the server's disk.

import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: the disk") struct MachineDiskTests {
  @Test("a visible push is sent when its claim is on the disk, a call at once")
  func waits() throws {
    var rig = try MachineRig.open()
    rig.syncs = false
    try rig.bring([rig.delivery(1), rig.delivery(2, kind: .notification), rig.delivery(3, kind: .missedCall)])
    #expect(rig.sends().map(\.kind) == [.invite])
    #expect(rig.syncCount() == 1)
    rig.hear(.synced(.success(())))
    #expect(rig.sends().count == 2)
    rig.live(.seconds(1))
    #expect(rig.syncCount() == 0)
    #expect(rig.sends().isEmpty)
  }

  @Test("a delivery claimed during a sync waits for the next sync")
  func next() throws {
    var rig = try MachineRig.open()
    rig.syncs = false
    try rig.bring([rig.delivery(1, kind: .notification)])
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(2, kind: .notification)])
    #expect(rig.syncCount() == 1)
    rig.hear(.synced(.success(())))
    #expect(rig.sends().count == 1)
    rig.pass(.milliseconds(2))
    #expect(rig.syncCount() == 1)
    rig.hear(.synced(.success(())))
    #expect(rig.sends().count == 1)
  }

  @Test("when a sync fails, what waits for the disk goes back: its claim may be lost")
  func failed() throws {
    var rig = try MachineRig.open()
    rig.syncs = false
    try rig.bring([rig.delivery(1, kind: .notification)])
    #expect(rig.syncCount() == 1)
    rig.hear(.outbox(.bell))
    try rig.bring([rig.delivery(2, kind: .notification)])
    rig.hear(.synced(.failure(.test(.answerLost))))
    rig.pass(.milliseconds(5))
    let parkings = rig.parkings().flatMap(\.parkings)
    #expect(parkings.map(\.lease.outboxID) == [1, 2])
    #expect(parkings.allSatisfy { $0.attempts == 0 && $0.delay == .milliseconds(250) })
    rig.live(.seconds(1))
    #expect(rig.sends().isEmpty)
    #expect(rig.syncCount() == 0)
    #expect(rig.isDrained == false, "the parking is being written")
  }

  @Test("for an app that is at_least_once nothing waits")
  func atLeastOnce() throws {
    var rig = try MachineRig.open(isAtLeastOnce: true)
    rig.syncs = false
    try rig.bring([rig.delivery(1, kind: .notification)])
    #expect(rig.syncCount() == 0)
    #expect(rig.sends().count == 1)
  }
}

// What people see waits until its claim is on the server's disk.

import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: the disk") struct MachineDiskTests {
  @Test("what people see is sent when the disk has its claim, a ring at once")
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

  @Test("what is claimed while the disk is asked waits for the next question")
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

  @Test("a question that failed is asked again")
  func again() throws {
    var rig = try MachineRig.open()
    rig.syncs = false
    try rig.bring([rig.delivery(1, kind: .notification)])
    #expect(rig.syncCount() == 1)
    rig.hear(.synced(.failure(.test(.answerLost))))
    #expect(rig.syncCount() == 0)
    #expect(rig.sends().isEmpty)
    rig.live(.seconds(1))
    #expect(rig.syncCount() == 1)
    rig.hear(.synced(.success(())))
    #expect(rig.sends().count == 1)
  }

  @Test("where people would rather see something twice than not at all, nothing waits")
  func atLeastOnce() throws {
    var rig = try MachineRig.open(isAtLeastOnce: true)
    rig.syncs = false
    try rig.bring([rig.delivery(1, kind: .notification)])
    #expect(rig.syncCount() == 0)
    #expect(rig.sends().count == 1)
  }
}

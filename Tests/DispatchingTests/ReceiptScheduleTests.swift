// Tests of when receipts are requested.

import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Receipt schedule")
struct ReceiptScheduleTests {
  private let now = Instant(nanoseconds: 1_000_000_000_000)

  @Test("after a full batch the next is due at once, else after the interval")
  func rhythm() {
    var schedule = ReceiptSchedule(receiptAfter: .seconds(900))
    #expect(schedule.interval == .seconds(10))
    schedule.didRead(isFull: true, now)
    #expect(schedule.next == now)
    schedule.didRead(isFull: false, now)
    #expect(schedule.next == now + .seconds(10))
  }

  @Test("failures increase the pause to at most a minute, or to the provider's own pause")
  func failures() {
    var schedule = ReceiptSchedule(receiptAfter: .seconds(900))
    for pause in [10, 20, 40, 60, 60] {
      schedule.didFail(after: nil, now)
      #expect(schedule.next == now + .seconds(Int64(pause)))
    }
    schedule.didFail(after: .seconds(300), now)
    #expect(schedule.next == now + .seconds(300))
    schedule.didRead(isFull: false, now)
    schedule.didFail(after: nil, now)
    #expect(schedule.next == now + .seconds(10))
  }
}

// The decisions for each delivery between claim and settlement.

import Queue
import Runtime

enum QueueSteps {
  static var all: [Step] {
    [
      Step(name: "queue.scheduler_delivery", run: scheduler),
      Step(name: "queue.scheduler_turn_600_lanes", run: turns),
      Step(name: "queue.batcher_delivery", run: batcher),
      Step(name: "queue.pacer_turn", run: pacer),
    ]
  }

  /// Claims of 500, of which each delivery is sent, answered and finished.
  private static func scheduler(_ count: Int) {
    var scheduler = LaneScheduler()
    scheduler.add(lane: 1, window: 2000)
    scheduler.setCapacity(1000, of: 1)
    var now = Instant(nanoseconds: 0)
    var left = count
    while left > 0 {
      now = now + .milliseconds(10)
      let claimed = min(left, Int(scheduler.allowances(now).first?.limit ?? 0), 500)
      precondition(claimed > 0, "the scheduler gives nothing")
      scheduler.didClaim(claimed, of: 1)
      scheduler.didSend(claimed, of: 1)
      for _ in 0..<claimed {
        keep(scheduler.didHear(.working, from: 1, now))
        scheduler.didFinish(1)
      }
      left -= claimed
    }
  }

  /// The allowances of 600 lanes.
  private static func turns(_ count: Int) {
    var scheduler = LaneScheduler()
    for lane in 1...600 as ClosedRange<Int16> {
      scheduler.add(lane: lane, window: 2000)
      scheduler.setCapacity(1000, of: lane)
    }
    var now = Instant(nanoseconds: 0)
    for _ in 0..<count {
      now = now + .milliseconds(1)
      keep(scheduler.allowances(now))
    }
  }

  private static func batcher(_ count: Int) {
    var batcher = SettlementBatcher<Int>()
    let now = Instant(nanoseconds: 0)
    for element in 0..<count {
      batcher.add(element, now)
      if let batch = batcher.dequeue(now) {
        keep(batch)
        batcher.didEnd()
      }
    }
  }

  private static func pacer(_ count: Int) {
    var pacer = ClaimPacer()
    var now = Instant(nanoseconds: 0)
    for turn in 0..<count {
      now = now + .milliseconds(1)
      pacer.didHearBell(now, isClaiming: turn & 1 == 0)
      pacer.didClaim(turn & 1, now)
      keep(pacer.next)
    }
  }
}

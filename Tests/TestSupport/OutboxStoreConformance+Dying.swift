// Rules of rows that a gateway has lost sight of, of gateways that die, of a server that crashes, and of shared jobs.

import PushModel
import Queue
import Runtime

extension OutboxStoreConformance {
  static let scanning = [
    OutboxStoreRule("page by page, a gateway finds exactly the deliveries that it has claimed") { server in
      _ = try await server.call(devices: 400)
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      _ = try await other.claim(1, server.allowances(50), within: ClaimLimits())
      var claimed = try await gateway.claim(1, server.allowances(100), within: ClaimLimits()).deliveries
      claimed += try await gateway.claim(2, server.allowances(100), within: ClaimLimits()).deliveries
      _ = try await gateway.settle(claimed[..<20].map { Settlement(delivered: $0) })
      _ = try await gateway.park(claimed[20..<40].map { Parking(releasing: $0.lease) })
      _ = try await gateway.park([Parking(lease: claimed[40].lease, attempts: 1, delay: .seconds(30), reason: "x")])
      var (found, page): ([DeliveryLease], Int64?) = ([], nil)
      repeat {
        let part = try await gateway.claimed(from: page)
        found += part.leases
        page = part.next
      } while page != nil
      try expect(found.count, claimed.count - 41, "leases")
      try expect(Set(found), Set(claimed[41...].map(\.lease)), "which")
    },
    OutboxStoreRule("of disowned rows, those that people see end as dead, unless the app is at_least_once") { server in
      try await server.setAtLeastOnce(true, lane: server.lanes[1])
      let invite = try await server.call()
      let once = try await server.enqueue(.notification, lane: server.lanes[0], devices: 1, seconds: 300)
      let repeated = try await server.enqueue(.notification, lane: server.lanes[1], devices: 1, seconds: 300)
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      try expect(try await gateway.disown(claimed.map(\.lease)), 3, "disowned")
      try expect(try await server.states(of: invite, repeated), [.ready, .ready], "rows")
      try expect(try await server.owed(of: invite, repeated).map(\.attempts), [1, 1], "attempts")
      try expect(try await server.owed(of: invite, repeated).map(\.crashes), [0, 0], "crashes")
      try expect(try await server.ended(of: once).map(\.outcome), [.dead], "outcomes")
      try expect(try await server.ended(of: once).map(\.reason), ["GatewayCrashed"], "reasons")
      try expect(try await gateway.disown(claimed.map(\.lease)), 0, "disowned the second time")
      try expect(try await server.claim(2, gateway).map(\.key.outboxID), [invite, repeated], "what is claimed")
    },
  ]

  static let dying = [
    OutboxStoreRule("a gateway that sends heartbeats is alive") { server in
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      for _ in 0..<5 {
        try await server.advance(by: server.silence / 3)
        try expect(try await gateway.beat(mayReap: true), true, "the one")
        try expect(try await other.beat(mayReap: true), true, "the other")
      }
    },
    OutboxStoreRule("a gateway that was silent too long is declared dead by another, and its invites are ready again") {
      server in
      let call = try await server.call(devices: 2)
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      let claimed = try await server.claim(1, gateway)
      try await server.beat(other, mayReap: false)
      try expect(try await server.states(of: call), [.claimed(lease: 1), .claimed(lease: 1)], "rows before")
      _ = try await other.beat(mayReap: true)
      try expect(try await server.states(of: call), [.claimed(lease: 1), .claimed(lease: 1)], "rows at the first look")
      try await server.lookAgain(other)
      try expect(try await server.states(of: call), [.ready, .ready], "rows afterwards")
      try expect(try await server.owed(of: call).map(\.crashes), [1, 1], "crashes")
      try expect(try await gateway.beat(mayReap: true), false, "the silent one is alive")
      let dead = claimed.map { Settlement($0, outcome: .dead, attempts: 1, reason: "x") }
      try expect(try await gateway.settle(dead), 0, "what it settles")
      try expect(try await server.claim(2, gateway).count, 0, "what it claims")
      try expect(try await server.claim(1, other).map(\.attempt), [2, 2], "attempts of another's claim")
      try await gateway.register()
      try expect(
        try await gateway.beat(mayReap: true), true, "the beat of its new life")
      try expect(try await gateway.settle(dead), 0, "what it settles of its former life")
      _ = try await server.call()
      try expect(try await server.claim(1, gateway).count, 1, "what it claims in its new life")
    },
    OutboxStoreRule(
      "after a gap in its own heartbeats a gateway declares none dead for a while: the server may have hung"
    ) {
      server in
      let call = try await server.call()
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      _ = try await server.claim(1, gateway)
      try await server.beat(other, mayReap: false)
      _ = try await gateway.beat(mayReap: true)
      try await server.advance(by: server.silence * 4 / 3)
      for _ in 0..<2 { _ = try await other.beat(mayReap: true) }
      try expect(try await gateway.beat(mayReap: true), true, "one that beats next is alive")
      try expect(try await server.states(of: call), [.claimed(lease: 1)], "rows")
      try await server.reap(by: other)
      try expect(try await server.states(of: call), [.ready], "rows, when it is silent for longer")
    },
    OutboxStoreRule("after a pause or clock step in which all gateways were silent, none is declared dead") {
      server in
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      for step in [server.silence * 2, .seconds(-600), .seconds(3_600)] {
        try await server.advance(by: step)
        for _ in 0..<2 {
          try expect(try await other.beat(mayReap: true), true, "the first to be heard after \(step.seconds) s lives")
          try await server.advance(by: server.silence / 3)
        }
        try expect(try await gateway.beat(mayReap: true), true, "the next to be heard after \(step.seconds) s lives")
      }
      try await server.advance(by: .seconds(-600))
      try await server.listen(other)
      _ = try await other.beat(mayReap: true)
      try await server.lookAgain(other)
      try expect(
        try await gateway.beat(mayReap: true), false, "who was not heard since the clock was set back lives")
    },
    OutboxStoreRule("a gateway that registers between two clock steps is not declared dead by one that noticed neither")
    {
      server in
      let other = try await server.gateway()
      try await server.listen(other)
      try await server.advance(by: server.silence * -5 / 3)
      let gateway = try await server.gateway()
      try await server.advance(by: server.silence * 2)
      _ = try await other.beat(mayReap: true)
      try expect(try await gateway.beat(mayReap: true), true, "one that beats next is alive")
      try await server.lookAgain(other)
      try expect(try await gateway.beat(mayReap: true), true, "and later")
    },
    OutboxStoreRule("jobs continue after the clock was set back") { server in
      let gateway = try await server.gateway()
      try await server.runJobs(gateway)
      try await server.advance(by: .seconds(-86_400))
      let call = try await server.call(seconds: 1)
      try await server.advance(by: .seconds(2))
      try await server.runJobs(gateway)
      try expect(try await server.ended(of: call).map(\.outcome), [.expired], "outcomes")
    },
    OutboxStoreRule("visible pushes are not repeated when their gateway dies, unless the app is at_least_once") {
      server in
      try await server.setAtLeastOnce(true, lane: server.lanes[1])
      let once = try await server.enqueue(.notification, lane: server.lanes[0], devices: 1, seconds: 300)
      let repeated = try await server.enqueue(.notification, lane: server.lanes[1], devices: 1, seconds: 300)
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      try expect(try await server.claim(1, gateway).count, 2, "deliveries")
      try await server.reap(by: other)
      try expect(try await server.ended(of: once).map(\.outcome), [.dead], "outcomes")
      try expect(try await server.ended(of: once).map(\.reason), ["GatewayCrashed"], "reasons")
      try expect(try await server.states(of: repeated), [.ready], "rows of the app that wants repeats")
      try expect(try await server.claim(1, other).map(\.key.outboxID), [repeated], "what another claims")
    },
    OutboxStoreRule("when a gateway dies, its invites of ended calls are claimed as such") { server in
      _ = try await server.call()
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      let call = try await server.claim(1, gateway)[0].key.outboxID
      try await server.end(call)
      try await server.followUp(other)
      try await server.reap(by: other)
      let again = try await server.claim(1, other).filter { $0.kind == .invite }
      try expect(again.map(\.isEndedInvite), [true], "invites that must not be sent")
    },
    OutboxStoreRule("deliveries that two gateways had when they died are claimed one at a time") { server in
      _ = try await server.call(devices: 2)
      let last = try await server.gateway()
      for number in Int32(1)...2 {
        let victim = try await server.gateway()
        try expect(try await server.claim(number, victim).count, 2, "deliveries of victim \(number)")
        try await server.reap(by: last)
      }
      let healthy = try await server.call()
      let first = try await server.claim(1, last)
      try expect(first.filter { $0.crashes >= 2 }.count, 1, "suspects of the first claim")
      try expect(first.filter { $0.key.outboxID == healthy }.count, 1, "others of the first claim")
      try expect(try await server.claim(2, last).count, 0, "deliveries while it has a suspect")
      _ = try await last.settle(first.map { Settlement(delivered: $0) })
      try expect(try await server.claim(3, last).map(\.crashes), [2], "suspects afterwards")
    },
    OutboxStoreRule(
      "a delivery that three gateways died with is put aside; others that the last one had count no crash"
    ) { server in
      let call = try await server.call()
      let last = try await server.gateway()
      for number in Int32(1)...2 {
        try expect(
          try await server.claim(1, try await server.gateway()).map(\.key.outboxID), [call], "victim \(number)")
        try await server.reap(by: last)
      }
      let healthy = try await server.call()
      try expect(try await server.claim(1, try await server.gateway()).count, 2, "deliveries of victim 3")
      try await server.reap(by: last)
      try expect(try await server.ended(of: call).map(\.outcome), [.dead], "outcomes")
      try expect(try await server.ended(of: call).map(\.reason), ["GatewayCrashed"], "reasons")
      try expect(try await server.owed(of: healthy).map(\.crashes), [0], "crashes of the other")
      try expect(try await server.claim(1, last).map(\.key.outboxID), [healthy], "what is claimed afterwards")
    },
    OutboxStoreRule("a returned claim counts no crash") { server in
      let call = try await server.call()
      let gateway = try await server.gateway()
      for number in Int32(1)...4 {
        let claimed = try await server.claim(number, gateway)
        try expect(claimed.map(\.crashes), [0], "crashes at claim \(number)")
        if number % 2 == 0 {
          _ = try await gateway.forget(number)
        } else {
          _ = try await gateway.park(claimed.map { Parking(releasing: $0.lease) })
        }
      }
      try expect(try await server.owed(of: call).map(\.crashes), [0], "crashes")
    },
  ]

  static let crashing = [
    OutboxStoreRule("a claim that was lost in a crash settles no failure, and others claim the delivery at once") {
      server in
      let call = try await server.call()
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      var lost: [Delivery] = []
      try await server.crash { lost = try await server.claim(1, gateway) }
      try expect(try await server.states(of: call), [.ready], "rows after the crash")
      try expect(
        try await gateway.settle(lost.map { Settlement($0, outcome: .dead, attempts: 1, reason: "x") }), 0,
        "settled under the lost claim")
      try expect(try await server.claim(1, other).map(\.key), lost.map(\.key), "what another claims")
    }
  ]

  static let jobs = [
    OutboxStoreRule("a due job is done by the first gateway that asks") { server in
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      try await server.advance(by: .seconds(3600))
      _ = try await gateway.beat(mayReap: false)
      _ = try await other.beat(mayReap: false)
      let (first, second) = (try await gateway.claimJob(.upkeep), try await other.claimJob(.upkeep))
      try expect(first != nil, "there is a job")
      try expect(first != second, "another gets another")
    },
    OutboxStoreRule("urgent jobs are claimed beside the others") { server in
      let gateway = try await server.gateway()
      try await server.advance(by: .seconds(3600))
      _ = try await gateway.beat(mayReap: false)
      var (urgent, upkeep): (Set<String>, Set<String>) = ([], [])
      while let job = try await gateway.claimJob(.urgent), urgent.insert(job).inserted {}
      while let job = try await gateway.claimJob(.upkeep), upkeep.insert(job).inserted {}
      try expect(urgent.isSuperset(of: ["promote", "follow_up_urgent"]), "rings wait for retries and next channels")
      try expect(upkeep.isSuperset(of: ["miss", "expire", "follow_up"]), "no ring waits for these")
      try expect(urgent.isDisjoint(with: upkeep), "each job is of one kind")
    },
    OutboxStoreRule("a job ends unclaimed deliveries after their deadline as expired") { server in
      let call = try await server.call(seconds: 1)
      let gateway = try await server.gateway()
      try await server.advance(by: .seconds(2))
      try await server.runJobs(gateway)
      try expect(try await server.ended(of: call).map(\.outcome), [.expired], "outcomes")
      try expect(try await server.owed(of: call).filter { $0.kind == .invite }.count, 0, "owed")
    },
  ]
}

// Rules of settling, parking and releasing deliveries.

import PushModel
import Queue
import Runtime

extension OutboxStoreConformance {
  static let settling = [
    OutboxStoreRule("a settlement is written once, with all its values") { server in
      let call = try await server.call(devices: 2)
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      let settlements = [
        Settlement(delivered: claimed[0]),
        Settlement(claimed[1], outcome: .dead, attempts: 4, status: 410, reason: "Unregistered"),
      ]
      try expect(try await gateway.settle(settlements), 2, "written")
      try expect(try await gateway.settle(settlements), 0, "written the second time")
      try expect(try await server.owed(of: call).count, 0, "owed")
      let ended = try await server.ended(of: call)
      try expect(ended.map(\.key), claimed.map(\.key), "keys")
      try expect(ended.map(\.outcome), [.delivered, .dead], "outcomes")
      try expect(ended.map(\.attempts), [1, 4], "attempts")
      try expect(ended.map(\.reason), [nil, "Unregistered"], "reasons")
    },
    OutboxStoreRule("a gateway can ask for its own recent settlements") { server in
      _ = try await server.call(devices: 3)
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      let settlements = try await server.claim(1, gateway).map { Settlement(delivered: $0) }
      _ = try await gateway.settle(Array(settlements[..<2]))
      try expect(try await gateway.settled(among: settlements), Set(settlements[..<2].map(\.lease.key)), "its own")
      try expect(try await other.settled(among: settlements), [], "another's")
    },
    OutboxStoreRule("a settlement finds a row by its key if it has moved") { server in
      let call = try await server.call(devices: 3)
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      let settlements = [
        Settlement(delivered: claimed[0], place: claimed[1].place),
        Settlement(claimed[1], place: claimed[0].place, outcome: .dead, attempts: 2, reason: "BadDeviceToken"),
        Settlement(delivered: claimed[2], place: .unknown),
      ]
      try expect(try await gateway.settle(settlements), 3, "written")
      try expect(try await server.ended(of: call).map(\.outcome), [.delivered, .dead, .delivered], "outcomes")
    },
    OutboxStoreRule("only the claim that has a row settles, parks, releases or disowns it") { server in
      let call = try await server.call()
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      let stale = try await server.claim(1, gateway)[0]
      _ = try await gateway.forget(1)
      let current = try await server.claim(2, gateway)[0]
      func parking(_ lease: DeliveryLease) -> Parking {
        Parking(lease: lease, attempts: 1, delay: .seconds(1), reason: "x")
      }
      func dead(_ delivery: Delivery, at place: DeliveryPlace? = nil) -> Settlement {
        Settlement(delivery, place: place, outcome: .dead, attempts: 1, reason: "x")
      }
      try expect(try await gateway.settle([dead(stale)]), 0, "settled under the former claim")
      let there = dead(stale, at: current.place)
      try expect(try await gateway.settle([there]), 0, "settled under the former claim, where the row lies now")
      try expect(try await gateway.park([parking(stale.lease)]), 0, "parked under the former claim")
      try expect(try await gateway.park([Parking(releasing: stale.lease)]), 0, "released under the former claim")
      try expect(try await gateway.disown([stale.lease]), 0, "disowned under the former claim")
      try expect(try await other.settle([dead(current)]), 0, "settled by another")
      try expect(try await other.park([parking(current.lease)]), 0, "parked by another")
      try expect(try await other.park([Parking(releasing: current.lease)]), 0, "released by another")
      try expect(try await other.disown([current.lease]), 0, "disowned by another")
      try expect(try await server.states(of: call), [.claimed(lease: 2)], "rows")
      try expect(try await gateway.settle([Settlement(delivered: current)]), 1, "settled under the claim that has it")
    },
    OutboxStoreRule("lost deliveries of a batch do not prevent the others from being written") { server in
      let call = try await server.call(devices: 3)
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      _ = try await gateway.park([Parking(releasing: claimed[1].lease)])
      let dead = claimed.map { Settlement($0, outcome: .dead, attempts: 1, reason: "x") }
      try expect(try await gateway.settle(dead), 2, "written")
      try expect(try await server.states(of: call), [.ready], "rows that are left")
    },
    OutboxStoreRule("a parked delivery waits for its time and keeps its attempts") { server in
      let call = try await server.call()
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      let parking = Parking(lease: claimed[0].lease, attempts: 4, delay: .seconds(200), reason: "ServiceUnavailable")
      try expect(try await gateway.park([parking]), 1, "parked")
      try expect(try await server.owed(of: call).map(\.attempts), [4], "attempts")
      try expect(try await server.states(of: call), [.waiting], "rows")
      try await server.runJobs(gateway)
      try expect(try await server.claim(2, gateway).count, 0, "deliveries before its time")
      try await server.advance(by: .seconds(201))
      _ = try await gateway.beat(mayReap: false)
      try await server.runJobs(gateway)
      try expect(try await server.claim(3, gateway).map(\.attempt), [5], "attempts of the claim after it")
    },
    OutboxStoreRule("a released delivery is ready at once, and its attempt is not counted") { server in
      let call = try await server.call(devices: 2)
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      try expect(try await gateway.park(claimed.map { Parking(releasing: $0.lease) }), 2, "released")
      try expect(try await server.owed(of: call).map(\.attempts), [0, 0], "attempts")
      try expect(try await server.claim(2, gateway).map(\.attempt), [1, 1], "attempts of the next claim")
    },
    OutboxStoreRule("deliveries are parked and released together, each in its way") { server in
      let call = try await server.call(devices: 3)
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      let parkings = [
        Parking(lease: claimed[0].lease, attempts: 4, delay: .seconds(200), reason: "ServiceUnavailable"),
        Parking(releasing: claimed[1].lease),
        Parking(lease: claimed[2].lease, attempts: 1, delay: .seconds(200), reason: "x"),
      ]
      try expect(try await gateway.park(parkings), 3, "returned")
      try expect(try await server.states(of: call), [.waiting, .ready, .waiting], "rows")
      try expect(try await server.owed(of: call).map(\.attempts), [4, 0, 1], "attempts")
    },
    OutboxStoreRule(
      "a delivery that was handed on is ready at once for others, and for the gateway itself when it is due"
    ) {
      server in
      let call = try await server.call(devices: 2)
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      let claimed = try await server.claim(1, gateway)
      let handOns = claimed.map {
        Parking(lease: $0.lease, attempts: 1, delay: .seconds(200), isHandedOn: true, reason: "TimedOut")
      }
      try expect(try await gateway.park(handOns), 2, "handed on")
      try expect(try await server.states(of: call), [.ready, .ready], "rows")
      try expect(try await server.claim(2, gateway).count, 0, "deliveries of the gateway before they are due")
      let taken = try await other.claim(1, server.allowances(1), within: ClaimLimits()).deliveries
      try expect(taken.map(\.attempt), [2], "attempts of the other's claim")
      try await server.advance(by: .seconds(201))
      _ = try await gateway.beat(mayReap: false)
      try expect(try await server.claim(3, gateway).map(\.attempt), [2], "attempts of the gateway's claim afterwards")
      // What is released is due at once.
      _ = try await other.park(taken.map { Parking(releasing: $0.lease) })
      try expect(
        try await server.claim(4, gateway).map(\.key.pushNumber), taken.map(\.key.pushNumber),
        "what the other has released")
    },
    OutboxStoreRule("nobody has a delivery that is handed on for a second time before the others had it once") {
      server in
      _ = try await server.call()
      let gateways = [try await server.gateway(), try await server.gateway(), try await server.gateway()]
      for round in Int32(1)...2 {
        var turns: [Int] = []
        for number in [2 * round - 1, 2 * round] {
          for gateway in gateways {
            let taken = try await gateway.claim(number, server.allowances(1), within: ClaimLimits()).deliveries
            turns.append(taken.count)
            guard let lease = taken.first?.lease else { continue }
            let handOn = Parking(
              lease: lease, attempts: 1, delay: .seconds(200), isHandedOn: true, reason: "TimedOut")
            try expect(try await gateway.park([handOn]), 1, "handed on")
          }
        }
        try expect(turns, [1, 1, 1, 0, 0, 0], "turns of round \(round)")
        // The next round needs no job.
        try await server.advance(by: .seconds(201))
        for gateway in gateways { _ = try await gateway.beat(mayReap: false) }
      }
    },
    OutboxStoreRule("a long wait of one gateway keeps what is handed on from no other, but all that have one wait") {
      server in
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      var number: Int32 = 0
      for (first, second, count) in [(200, 20, 1), (20, 200, 1), (200, 200, 0)] as [(Int64, Int64, Int)] {
        _ = try await server.call()
        number += 1
        for (store, wait) in [(gateway, first), (other, second)] {
          let taken = try await server.claim(number, store)
          let handOns = taken.map {
            Parking(lease: $0.lease, attempts: 1, delay: .seconds(wait), isHandedOn: true, reason: "TimedOut")
          }
          try expect(try await store.park(handOns), 1, "handed on")
        }
        number += 1
        try expect(try await server.claim(number, other).count, 0, "before anybody's wait is over")
        try await server.advance(by: .seconds(21))
        for store in [gateway, other] { _ = try await store.beat(mayReap: false) }
        number += 1
        try expect(try await server.claim(number, other).count, count, "after 21 of \(first) and \(second) s")
      }
    },
    OutboxStoreRule(
      "a gateway whose lane is sick claims what others have left for 100 ms, before and after it was handed on"
    ) {
      server in
      _ = try await server.call()
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      let last = server.lanes.map { LaneAllowance(lane: $0, limit: 1, isLast: true) }
      func claims(_ number: Int32) async throws -> [Int32] {
        try await gateway.claim(number, last, within: ClaimLimits()).deliveries.map(\.attempt)
      }
      let taken = try await server.claim(1, other)
      let handOn = Parking(
        lease: taken[0].lease, attempts: 1, delay: .seconds(200), isHandedOn: true, reason: "TimedOut")
      try expect(try await other.park([handOn]), 1, "handed on")
      // Then it was just handed on, however slow the machine is.
      try await server.advance(by: .seconds(-60))
      try expect(try await claims(1), [], "what was just handed on")
      try await server.advance(by: .seconds(61))
      _ = try await gateway.beat(mayReap: false)
      let new = server.lanes.map { LaneAllowance(lane: $0, limit: 1, takesOnlyNew: true) }
      try expect(
        try await gateway.claim(2, new, within: ClaimLimits()).deliveries.count, 0,
        "what was handed on, where only new ones are wanted")
      try expect(try await claims(3), [2], "what was handed on, and left")
      _ = try await server.call()
      try await server.advance(by: .seconds(1))
      try expect(try await claims(4), [1], "what was left")
    },
    OutboxStoreRule("an answer that comes late settles a delivery that was handed on, if nobody has claimed it since") {
      server in
      let call = try await server.call(devices: 3)
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      let claimed = try await server.claim(1, gateway)
      try expect(
        try await gateway.park(
          claimed.map {
            Parking(lease: $0.lease, attempts: 1, delay: .seconds(200), isHandedOn: true, reason: "TimedOut")
          }), 3, "handed on")
      let taken = try await other.claim(1, server.allowances(1), within: ClaimLimits()).deliveries
      try expect(taken.count, 1, "deliveries of the other, under a claim of the same number")
      func dead(_ reason: String) -> [Settlement] {
        claimed.map { Settlement($0, outcome: .dead, attempts: 1, reason: reason) }
      }
      try expect(try await other.settle(dead("its own")), 1, "settled by the other")
      try expect(try await gateway.settle(dead("late")), 2, "settled late")
      let reasons = try await server.ended(of: call).map { $0.reason ?? "" }
      try expect(reasons.sorted(), ["its own", "late", "late"], "reasons")
    },
    OutboxStoreRule("what a provider has accepted is delivered, whoever has the row by then") { server in
      // Handed on, then: with nobody; or with the other, which hands it on, lets it expire, accepts it, too, or releases it; and parked.
      let call = try await server.call(devices: 6)
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      let claimed = try await server.claim(1, gateway)
      func handOn(_ lease: DeliveryLease, _ isHandedOn: Bool = true) -> Parking {
        Parking(lease: lease, attempts: 1, delay: .seconds(200), isHandedOn: isHandedOn, reason: "TimedOut")
      }
      try expect(try await gateway.park(claimed.dropFirst().map { handOn($0.lease) }), 5, "handed on")
      let taken = try await other.claim(1, server.allowances(4), within: ClaimLimits()).deliveries
      try expect(taken.count, 4, "deliveries of the other")
      try expect(try await gateway.park([handOn(claimed[0].lease, false)]), 1, "what is parked")
      try expect(try await gateway.settle(claimed.map { Settlement(delivered: $0) }), 2, "settled late")
      try expect(try await server.ended(of: call).count, 2, "what nobody had")
      try expect(try await other.park([handOn(taken[0].lease), Parking(releasing: taken[1].lease)]), 2, "returned")
      try expect(
        try await other.settle([
          Settlement(taken[2], outcome: .expired, attempts: 2, reason: "x"), Settlement(delivered: taken[3]),
        ]), 2, "settled by the other")
      let ended = try await server.ended(of: call)
      try expect(ended.map(\.outcome), Array(repeating: .delivered, count: 6), "outcomes")
      try expect(ended.count { $0.reason == "Hedged" }, 3, "those that ended otherwise")
      try expect(try await server.states(of: call), [], "rows")
    },
    OutboxStoreRule("an acceptance is one of its own delivery, not of another one with the same number") { server in
      let call = try await server.call()
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      let delivery = try await server.claim(1, gateway)[0]
      let former = DeliveryLease(
        DeliveryKey(
          outboxID: delivery.key.outboxID, pushNumber: delivery.key.pushNumber,
          createdAtMicroseconds: delivery.key.createdAtMicroseconds - 1), lease: 1)
      let stranger = Settlement(delivery, lease: former, outcome: .delivered, attempts: 1)
      try expect(try await other.settle([stranger]), 0, "settled while it is claimed")
      try expect(try await gateway.park([Parking(releasing: delivery.lease)]), 1, "released")
      try expect(try await other.settle([stranger]), 0, "settled while nobody has it")
      try expect(try await server.states(of: call), [.ready], "rows")
    },
    OutboxStoreRule("what a provider has accepted is not ready again when the gateway that has it dies") { server in
      let call = try await server.call()
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      let delivery = try await server.claim(1, gateway)[0]
      let handOn = Parking(
        lease: delivery.lease, attempts: 1, delay: .seconds(200), isHandedOn: true, reason: "TimedOut")
      try expect(try await gateway.park([handOn]), 1, "handed on")
      let taken = try await other.claim(1, server.allowances(1), within: ClaimLimits()).deliveries
      try expect(try await gateway.settle([Settlement(delivered: delivery)]), 0, "settled late")
      try expect(try await other.disown(taken.map(\.lease)), 1, "disowned")
      try expect(try await server.ended(of: call).map(\.outcome), [.delivered], "outcomes")
    },
    OutboxStoreRule("an invite that is parked or released when its call has ended stays owed, and is claimed as such") {
      server in
      let call = try await server.call(devices: 2)
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      try await server.end(call)
      try await server.followUp(gateway)
      let parking = Parking(lease: claimed[1].lease, attempts: 1, delay: .milliseconds(10), reason: "x")
      try expect(try await gateway.park([Parking(releasing: claimed[0].lease), parking]), 2, "returned")
      try await server.advance(by: .seconds(2))
      _ = try await gateway.beat(mayReap: false)
      try await server.runJobs(gateway)
      let again = try await server.claim(2, gateway).filter { $0.kind == .invite }
      try expect(again.map(\.isEndedInvite), [true, true], "invites that must not be sent")
    },
    OutboxStoreRule("an invite that is settled as void without a reason gets that of its call") { server in
      let (ended, declined) = (try await server.call(), try await server.call(devices: 2))
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      try await server.end(ended)
      try await server.decline(declined, device: 0)
      let void = claimed[..<2].map { Settlement($0, outcome: .void, attempts: 1) }
      try expect(try await gateway.settle(void), 2, "written")
      try expect(try await server.ended(of: ended).map(\.reason), ["CallEnded"], "reasons of the call that ended")
      try expect(try await server.ended(of: declined).map(\.reason), ["UserDeclined"], "reasons of the other")
    },
    OutboxStoreRule("a gateway can ask for whom calls no longer ring") { server in
      let (ringing, ended, declined) = (
        try await server.call(), try await server.call(), try await server.call(devices: 2)
      )
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      let calls = [ringing, ended, declined]
      try expect(try await gateway.endedFor(calls), EndedRings(), "before")
      try await server.end(ended)
      try await server.decline(declined, device: 0)
      let found = try await gateway.endedFor(calls + [declined + 1_000_000])
      try expect(found.calls, [ended, declined + 1_000_000], "calls that ring for nobody")
      try expect(found.decliners.keys.sorted(), [declined], "calls that some users have declined")
      try expect(claimed.map(found.includes), [false, true, true, false], "invites that must not be sent")
      try expect(try await gateway.endedFor([]), EndedRings(), "of none")
    },
  ]
}

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
      try expect(try await gateway.settle([Settlement(delivered: stale)]), 0, "settled under the former claim")
      let there = Settlement(delivered: stale, place: current.place)
      try expect(try await gateway.settle([there]), 0, "settled under the former claim, where the row lies now")
      try expect(try await gateway.park([parking(stale.lease)]), 0, "parked under the former claim")
      try expect(try await gateway.park([Parking(releasing: stale.lease)]), 0, "released under the former claim")
      try expect(try await gateway.disown([stale.lease]), 0, "disowned under the former claim")
      try expect(try await other.settle([Settlement(delivered: current)]), 0, "settled by another")
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
      try expect(try await gateway.settle(claimed.map { Settlement(delivered: $0) }), 2, "written")
      try expect(try await server.states(of: call), [.ready], "rows that are left")
    },
    OutboxStoreRule("a parked delivery waits for its time and keeps its attempts") { server in
      let call = try await server.call()
      let gateway = try await server.gateway()
      let claimed = try await server.claim(1, gateway)
      let parking = Parking(lease: claimed[0].lease, attempts: 4, delay: .seconds(10), reason: "ServiceUnavailable")
      try expect(try await gateway.park([parking]), 1, "parked")
      try expect(try await server.owed(of: call).map(\.attempts), [4], "attempts")
      try expect(try await server.states(of: call), [.waiting], "rows")
      try await server.runJobs(gateway)
      try expect(try await server.claim(2, gateway).count, 0, "deliveries before its time")
      try await server.advance(by: .seconds(11))
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
        Parking(lease: claimed[0].lease, attempts: 4, delay: .seconds(10), reason: "ServiceUnavailable"),
        Parking(releasing: claimed[1].lease),
        Parking(lease: claimed[2].lease, attempts: 1, delay: .seconds(10), reason: "x"),
      ]
      try expect(try await gateway.park(parkings), 3, "returned")
      try expect(try await server.states(of: call), [.waiting, .ready, .waiting], "rows")
      try expect(try await server.owed(of: call).map(\.attempts), [4, 0, 1], "attempts")
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

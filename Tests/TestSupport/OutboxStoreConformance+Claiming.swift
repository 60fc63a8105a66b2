// Rules of claims, and of claims whose answer was lost.

import PushModel
import Queue
import Runtime

extension OutboxStoreConformance {
  static let claiming = [
    OutboxStoreRule("a delivery is claimed once, under the number of the claim, and the attempt is counted") { server in
      let call = try await server.call(devices: 3)
      let gateway = try await server.gateway()
      let first = try await server.claim(7, gateway)
      try expect(first.map(\.lease.lease), [7, 7, 7], "leases")
      try expect(first.map(\.attempt), [1, 1, 1], "attempts")
      try expect(first.map(\.key.pushNumber), [0, 1, 2], "numbers within the call")
      try expect(try await server.claim(8, gateway).count, 0, "deliveries of the second claim")
      try expect(
        try await server.states(of: call), [.claimed(lease: 7), .claimed(lease: 7), .claimed(lease: 7)], "rows")
    },
    OutboxStoreRule("deliveries of a call share its texts") { server in
      _ = try await server.call(devices: 3)
      let claimed = try await server.claim(1, try await server.gateway())
      try expect(claimed.count, 3, "deliveries")
      try expect(claimed.allSatisfy { $0.call === claimed[0].call }, "one object for all three")
      try expect(
        !claimed[0].callID.isEmpty && !claimed[0].payload.isEmpty && !claimed[0].token.isEmpty, "texts are there")
      try expect(!claimed[0].call.isOver, "the call rings")
    },
    OutboxStoreRule("two gateways that claim at the same time get different deliveries") { server in
      _ = try await server.call(devices: 200)
      let (one, other) = (try await server.gateway(), try await server.gateway())
      async let ofOne = one.claim(1, server.allowances(120), within: ClaimLimits())
      async let ofOther = other.claim(1, server.allowances(120), within: ClaimLimits())
      var claimed = try await ofOne.deliveries + ofOther.deliveries
      claimed += try await server.claim(2, one)
      try expect(claimed.count, 200, "deliveries in all")
      try expect(Set(claimed.map(\.key)).count, 200, "different ones")
    },
    OutboxStoreRule("the earliest deadline comes first") { server in
      let (late, early, middle) = (
        try await server.call(seconds: 300), try await server.call(seconds: 60), try await server.call(seconds: 120)
      )
      let gateway = try await server.gateway()
      var order: [Int64] = []
      for number in Int32(1)...3 {
        order += try await gateway.claim(number, server.allowances(1), within: ClaimLimits()).deliveries
          .map(\.key.outboxID)
      }
      try expect(order, [early, middle, late], "order")
    },
    OutboxStoreRule("a claim brings at most a lane's allowance from each lane, and at most the limit in all") {
      server in
      for lane in server.lanes { _ = try await server.enqueue(.invite, lane: lane, devices: 5, seconds: 60) }
      let gateway = try await server.gateway()
      let first = try await gateway.claim(1, server.allowances(2), within: ClaimLimits()).deliveries
      try expect(
        first.map(\.lane).sorted(), [server.lanes[0], server.lanes[0], server.lanes[1], server.lanes[1]].sorted(),
        "lanes")
      let second = try await gateway.claim(2, server.allowances(), within: ClaimLimits(inAll: 3)).deliveries
      try expect(second.count, 3, "deliveries")
      let third = try await gateway.claim(3, [LaneAllowance(lane: server.lanes[1], limit: 10)], within: ClaimLimits())
      try expect(third.deliveries.allSatisfy { $0.lane == server.lanes[1] }, "only of lanes with an allowance")
    },
    OutboxStoreRule("lanes are read in the order of the allowances, lanes with calls before lanes without") {
      server in
      let gateway = try await server.gateway()
      for lane in server.lanes { _ = try await server.enqueue(.invite, lane: lane, devices: 2, seconds: 60) }
      let one = try await gateway.claim(1, server.allowances().reversed(), within: ClaimLimits(inAll: 2)).deliveries
      try expect(one.map(\.lane), [server.lanes[1], server.lanes[1]], "lanes of the first claim")
      _ = try await server.enqueue(.notification, lane: server.lanes[1], devices: 2, seconds: 3600)
      let two = try await gateway.claim(2, server.allowances().reversed(), within: ClaimLimits(inAll: 2)).deliveries
      try expect(two.map(\.kind), [.invite, .invite], "kinds of the second claim")
    },
    OutboxStoreRule("deliveries with more than ten minutes left have limits of their own, in a lane and in all") {
      server in
      let gateway = try await server.gateway()
      for lane in server.lanes {
        _ = try await server.enqueue(.notification, lane: lane, devices: 5, seconds: 3600)
        _ = try await server.enqueue(.invite, lane: lane, devices: 1, seconds: 60)
      }
      func kinds(_ number: Int32, _ ofLane: Int32, _ inAll: Int32) async throws -> [PushKind] {
        let allowances = server.allowances(10, background: ofLane)
        return try await gateway.claim(number, allowances, within: ClaimLimits(background: inAll)).deliveries.map(
          \.kind
        )
        .sorted { $0.rawValue < $1.rawValue }
      }
      try expect(try await kinds(1, 10, 0), [.invite, .invite], "none in all")
      try expect(try await kinds(2, 0, 10), [], "none in a lane")
      try expect(try await kinds(3, 1, 10), [.notification, .notification], "one a lane")
      try expect(try await kinds(4, 10, 3), [.notification, .notification, .notification], "three in all")
    },
    OutboxStoreRule("a delivery whose deadline is too near is not claimed") { server in
      let call = try await server.call(seconds: 1)
      let gateway = try await server.gateway()
      try await server.advance(by: .milliseconds(800))
      try expect(try await server.claim(1, gateway).count, 0, "deliveries")
      try expect(try await server.states(of: call), [.ready], "rows")
    },
    OutboxStoreRule("an invite may be claimed when its call has ended, and the claim says so") { server in
      let (over, ringing) = (try await server.call(), try await server.call())
      let gateway = try await server.gateway()
      try await server.end(over)
      let claimed = try await server.claim(1, gateway)
      try expect(claimed.map(\.key.outboxID), [over, ringing], "calls")
      try expect(claimed.map(\.call.isOver), [true, false], "calls that are over")
      try expect(claimed.map(\.isEndedInvite), [true, false], "invites that must not be sent")
    },
    OutboxStoreRule("a claim says which users have declined") { server in
      let call = try await server.call(devices: 3)
      let gateway = try await server.gateway()
      try await server.decline(call, device: 1)
      let claimed = try await server.claim(1, gateway)
      try expect(claimed.map(\.isEndedInvite), [false, true, false], "invites that must not be sent")
      try expect(claimed.map(\.call.isOver), [false, false, false], "calls that are over")
      try expect(claimed.map(\.call.decliners), Array(repeating: [Array(claimed[1].userID)], count: 3), "who declined")
    },
    OutboxStoreRule("a gateway that has not registered gets nothing, and an error says so") { server in
      let gateway = try await server.makeGateway()
      do {
        _ = try await gateway.claim(1, server.allowances(), within: ClaimLimits())
      } catch let error as OutboxError {
        return try expect(error.code, .unavailable, "error")
      }
      try expect(false, "the claim fails")
    },
  ]

  static let forgetting = [
    OutboxStoreRule("a claim that is forgotten before it begins brings nothing; the next number does") { server in
      let call = try await server.call()
      let gateway = try await server.gateway()
      try expect(try await gateway.forget(3), 0, "rows that went back")
      for number in Int32(1)...3 { try expect(try await server.claim(number, gateway).count, 0, "claim \(number)") }
      try expect(try await server.states(of: call), [.ready], "rows")
      try expect(try await server.claim(4, gateway).map(\.attempt), [1], "attempts of claim 4")
    },
    OutboxStoreRule("deliveries of a forgotten claim are ready at once, and the attempt is not counted") { server in
      let call = try await server.call(devices: 2)
      let gateway = try await server.gateway()
      _ = try await server.claim(1, gateway)
      try expect(try await gateway.forget(1), 2, "rows that went back")
      try expect(try await server.owed(of: call).map(\.attempts), [0, 0], "attempts")
      try expect(try await server.states(of: call), [.ready, .ready], "rows")
      try expect(try await server.claim(2, gateway).count, 2, "deliveries of the next claim")
    },
    OutboxStoreRule("forgetting a claim changes no other claim of any gateway; repeating it changes nothing") {
      server in
      let call = try await server.call(devices: 3)
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      _ = try await other.claim(1, server.allowances(1), within: ClaimLimits())
      _ = try await gateway.claim(1, server.allowances(1), within: ClaimLimits())
      let second = try await gateway.claim(2, server.allowances(1), within: ClaimLimits()).deliveries
      try expect(try await gateway.forget(2), 1, "rows that went back")
      try expect(
        try await server.owed(of: call).filter { $0.state == .ready }.map(\.key), second.map(\.key), "ready rows")
      try expect(try await server.claim(3, gateway).count, 1, "deliveries of the next claim")
      try expect(try await gateway.forget(2), 0, "rows that went back the second time")
      try expect(try await server.owed(of: call).filter { $0.state == .ready }.count, 0, "ready rows afterwards")
    },
    OutboxStoreRule("an invite of a forgotten claim whose call has ended is claimed as such") { server in
      let call = try await server.call()
      let gateway = try await server.gateway()
      _ = try await server.claim(1, gateway)
      try await server.end(call)
      try await server.followUp(gateway)
      try expect(try await gateway.forget(1), 1, "rows that went back")
      let invites = try await server.claim(2, gateway).filter { $0.kind == .invite }
      try expect(invites.map(\.isEndedInvite), [true], "invites that must not be sent")
    },
  ]
}

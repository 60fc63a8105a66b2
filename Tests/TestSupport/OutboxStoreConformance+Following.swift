// Rules of what follows from ends, declines and failed invites.

import PushModel
import Queue
import Runtime

extension OutboxStoreConformance {
  static let following = [
    OutboxStoreRule("after the end of a call, invites that wait are void, and phones that may ring get a cancel") {
      server in
      let call = try await server.call(devices: 8)
      let gateway = try await server.gateway()
      let first = try await gateway.claim(1, server.allowances(7), within: ClaimLimits()).deliveries
      let at = first[0].deadline - .seconds(300)
      func failed(_ attempt: Int32, _ status: UInt16, isHedged: Bool = false) -> FailedAttempt {
        FailedAttempt(at: at, attempt: attempt, status: status, reason: "x", isHedged: isHedged)
      }
      // One may ring, one was refused, one waits for another try, one had no answer, one was refused after a try without an answer, one
      // after one that was hedged, one twice, and one was never claimed.
      _ = try await gateway.settle([
        Settlement(first[1], outcome: .dead, attempts: 1, status: 410, reason: "Unregistered"),
        Settlement(first[3], outcome: .dead, attempts: 5, reason: "ConnectionLost", sentAt: at),
        Settlement(
          first[4], outcome: .dead, attempts: 2, status: 410, reason: "Unregistered", sentAt: at,
          failures: [failed(1, 0)]),
        Settlement(
          first[5], outcome: .dead, attempts: 1, status: 410, reason: "Unregistered", sentAt: at,
          failures: [failed(1, 410, isHedged: true)]),
        Settlement(
          first[6], outcome: .dead, attempts: 2, status: 410, reason: "Unregistered", sentAt: at,
          failures: [failed(1, 503)]),
      ])
      _ = try await gateway.park([Parking(lease: first[2].lease, attempts: 1, delay: .seconds(5), reason: "Timeout")])
      try await server.end(call)
      try expect(
        try await server.owed(of: call).filter { $0.kind != .invite }.count, 0, "nothing is made at the end itself")
      try await server.followUp(gateway)
      let ended = try await server.ended(of: call).filter { $0.key.pushNumber < 8 }
      try expect(ended.map(\.outcome), [.dead, .void, .dead, .dead, .dead, .dead, .void], "outcomes")
      let cancelled = try await server.claim(2, gateway).filter { $0.kind == .cancel }.map { Array($0.token) }
      try expect(Set(cancelled), Set([0, 2, 3, 4, 5].map { Array(first[$0].token) }), "phones that are told")
    },
    OutboxStoreRule("a follow-up is taken once, and a second one of the same call makes nothing new") { server in
      let call = try await server.call(devices: 2)
      let (gateway, other) = (try await server.gateway(), try await server.gateway())
      _ = try await server.claim(1, gateway)
      try await server.decline(call, device: 0)
      try await server.end(call)
      try expect(try await gateway.followUp(.upkeep, max: 1), 1, "taken first")
      try expect(try await other.followUp(.upkeep, max: 10), 1, "taken by another")
      try expect(try await gateway.followUp(.upkeep, max: 10), 0, "taken then")
      try expect(try await gateway.followUp(.urgent, max: 10), 0, "urgent ones")
      let made = try await server.claimAll(from: 2, gateway)
      try expect(made.filter { $0.kind == .cancel }.count, 2, "cancels")
      try expect(made.filter { $0.kind == .missedCall }.count, 1, "missed calls: who declined gets none")
    },
    OutboxStoreRule("a phone that gets a cancel and a missed call is told so by both") { server in
      let call = try await server.call(devices: 2)
      let gateway = try await server.gateway()
      _ = try await gateway.claim(1, server.allowances(1), within: ClaimLimits())
      try await server.end(call)
      try await server.followUp(gateway)
      let made = try await server.claimAll(from: 2, gateway).filter { $0.kind != .invite }
      let cancelled = Set(made.filter { $0.kind == .cancel }.map { Array($0.token) })
      try expect(cancelled.count, 1, "cancels")
      try expect(made.filter { $0.kind == .missedCall }.count, 2, "missed calls")
      for one in made { try expect(one.isPaired, cancelled.contains(Array(one.token)), "\(one.kind) is paired") }
    },
    OutboxStoreRule("who declines is rung no more; others ring on until the last one has declined, which ends the call")
    {
      server in
      let call = try await server.call(devices: 2)
      let gateway = try await server.gateway()
      try await server.decline(call, device: 0)
      try await server.followUp(gateway)
      try expect(try await server.ended(of: call).map(\.reason), ["UserDeclined"], "reasons")
      try expect(try await server.states(of: call), [.ready], "rows of the other")
      try expect(try await gateway.endedFor([call]).calls, [], "calls that have ended")
      try await server.decline(call, device: 1)
      try await server.followUp(gateway)
      try expect(try await gateway.endedFor([call]).calls, [call], "calls that have ended then")
      try expect(try await server.owed(of: call).count, 0, "owed: nobody is told of a missed call")
    },
    OutboxStoreRule("what follows from a commit is not lost in a crash") { server in
      let call = try await server.call()
      let gateway = try await server.gateway()
      _ = try await server.claim(1, gateway)
      try await gateway.sync()
      try await server.end(call)
      try await server.crash { try expect(try await gateway.followUp(.upkeep, max: 10), 1, "taken before the crash") }
      _ = try await gateway.beat(mayReap: false)
      try await server.followUp(gateway)
      let kinds = try await server.claimAll(from: 2, gateway).map(\.kind).filter { $0 != .invite }
      try expect(kinds.sorted { $0.rawValue < $1.rawValue }, [.cancel, .missedCall], "made")
    },
    OutboxStoreRule("the jobs take what no gateway has taken") { server in
      let call = try await server.call()
      let gateway = try await server.gateway()
      try await server.end(call)
      try await server.runJobs(gateway)
      try expect(try await server.ended(of: call).map(\.outcome), [.void], "outcomes")
    },
  ]
}

// Tests of a lane with several services behind it: one that does not answer leaves room for the others, and what waits for a
// service costs no attempt.

import Providers
import Queue
import Runtime
import Testing

@testable import Dispatching

@Suite("Machine: several services behind a lane") struct MachineServiceTests {
  private static let keys =
    "#auth=" + String(repeating: "s", count: 21) + "Q&p256dh=B" + String(repeating: "P", count: 86)

  private static func token(_ host: String, _ id: Int64) -> String { "https://\(host)/push/\(id)\(keys)" }

  private static func open() throws -> MachineRig {
    var rig = try MachineRig.open(provider: .webpush, capacity: 400)
    rig.answersLookUps = true
    return rig
  }

  /// Whether a request goes to this host.
  private static func goes(_ request: PushRequest, to host: String) -> Bool {
    String(decoding: request.token, as: UTF8.self).hasPrefix("https://\(host)/")
  }

  /// An outbox of which each claim takes as many as it may.
  private struct Backlog {
    var rig: MachineRig
    var rows: [Delivery] = []
    var sent: [PushRequest] = []
    var parked: [Parking] = []
    var settled: [Settlement] = []

    mutating func run(_ duration: Nanoseconds, until isOver: (Self) -> Bool = { _ in false }) {
      let end = rig.now + duration
      while rig.now < end, !isOver(self) {
        rig.pass(.milliseconds(5))
        rig.beat()
        rig.answerHousekeeping()
        for (number, limit) in rig.allowances() {
          let taken = rows.prefix(limit)
          rows.removeFirst(taken.count)
          rig.hear(.claimed(number: number, .success(Claimed(deliveries: taken.map { $0.claimed(by: number) }))))
        }
        sent += rig.sends()
        for (batch, parkings) in rig.parkings() {
          parked += parkings
          rig.hear(.written(batch: batch, .success(.count(parkings.count))))
        }
        for (batch, settlements) in rig.settlements() {
          settled += settlements
          rig.hear(.written(batch: batch, .success(.count(settlements.count))))
        }
      }
    }
  }

  @Test("a service that never answers gets a quarter of the lane's room, and pushes to others are sent at once")
  func silent() throws {
    var backlog = Backlog(rig: try Self.open())
    backlog.rows = (1...3_000).map { backlog.rig.delivery($0, token: Self.token("silent.example", $0)) }
    backlog.rows += (4_001...4_100).map { backlog.rig.delivery($0, token: Self.token("good.example", $0)) }
    backlog.run(.milliseconds(500)) { $0.sent.count == 300 }
    #expect(backlog.sent.count { Self.goes($0, to: "good.example") } == 100)
    #expect(backlog.sent.count { Self.goes($0, to: "silent.example") } == 200)
    #expect(backlog.rig.inFlight <= 2_000)
    backlog.run(.milliseconds(20))
    // What does not fit into memory waits in the outbox, at different times. No attempt was made.
    #expect(backlog.parked.count == 1_600)
    #expect(backlog.parked.allSatisfy { $0.attempts == 0 && $0.failures.isEmpty && $0.reason == "OriginBusy" })
    #expect(backlog.parked.allSatisfy { (.seconds(2)..<Nanoseconds.seconds(4)).contains($0.delay ?? .zero) })
    #expect(Set(backlog.parked.map(\.delay)).count > 1_000)
    // A later one is sent at once, too.
    backlog.rows = [backlog.rig.delivery(5_000, token: Self.token("Good.example", 5_000))]
    backlog.run(.milliseconds(100)) { $0.sent.count == 301 }
    #expect(backlog.sent.count == 301)
  }

  @Test("two services that never answer, in any spelling of their names, leave room for a third")
  func twoSilent() throws {
    var backlog = Backlog(rig: try Self.open())
    let hosts = ["silent.example", "mute.example", "Silent.EXAMPLE", "silent.example:443"]
    backlog.rows = (1...4_000).map { id in
      backlog.rig.delivery(id, token: Self.token(hosts[Int(id) % hosts.count], id))
    }
    backlog.rows.append(backlog.rig.delivery(5_000, token: Self.token("good.example", 5_000)))
    backlog.run(.seconds(1)) { $0.sent.count == 401 }
    #expect(backlog.sent.count { Self.goes($0, to: "good.example") } == 1)
    #expect(backlog.sent.count == 401)
  }

  @Test("what waits for a place is sent when the service answers, and expires in time if it does not")
  func places() throws {
    var backlog = Backlog(rig: try Self.open())
    backlog.rows = (1...250).map { backlog.rig.delivery($0, token: Self.token("slow.example", $0)) }
    backlog.run(.milliseconds(200))
    #expect(backlog.sent.count == 200)
    backlog.rig.answer(Array(backlog.sent[..<30]))
    backlog.run(.milliseconds(100))
    #expect(backlog.sent.count == 230)
    backlog.run(.seconds(60))
    let expired = backlog.settled.filter { $0.outcome == .expired }
    #expect(expired.count == 20 && expired.allSatisfy { $0.reason == "OriginBusy" && $0.failures.isEmpty })
    #expect(backlog.sent.count == 230)
    // The requests end, and nothing is counted twice or lost.
    backlog.rig.answer(Array(backlog.sent[30...]), .expired)
    backlog.run(.seconds(1))
    // Of those without an answer, some were handed on.
    #expect(backlog.settled.count + backlog.parked.count == 250)
    #expect(backlog.parked.allSatisfy { $0.avoided == .us })
    #expect(backlog.rig.inFlight == 0)
  }

  @Test("a push that is put off is sent exactly when it is due, and no attempt is counted")
  func putOff() throws {
    var rig = try Self.open()
    try rig.bring([rig.delivery(1, token: Self.token("a.example", 1))])
    var request = try #require(rig.sends().first)
    for round in 0..<12 {
      rig.answer([request], .deferred(reason: "HTTP503", after: .milliseconds(1_500)), concernsLane: false)
      rig.pass(.milliseconds(1_499))
      #expect(rig.sends().isEmpty, "round \(round)")
      rig.pass(.milliseconds(1))
      request = try #require(rig.sends().first, "round \(round)")
      rig.beat()
      rig.answerHousekeeping()
    }
    rig.answer([request])
    rig.pass(.milliseconds(5))
    let settlement = try #require(rig.settlements().first?.settlements.first)
    #expect(settlement.outcome == .delivered && settlement.attempts == 1 && settlement.failures.isEmpty)
  }

  @Test("a push that is put off for long waits in the outbox until then, and only real tries are counted")
  func putOffForLong() throws {
    var rig = try Self.open()
    try rig.bring([
      rig.delivery(1, token: Self.token("a.example", 1)), rig.delivery(2, token: Self.token("a.example", 2)),
    ])
    let requests = rig.sends()
    rig.answer([requests[0]], .deferred(reason: "errno_201", after: .seconds(17)), concernsLane: false)
    rig.answer([requests[1]], .throttled(reason: "HTTP429", after: nil, isLaneWide: false), concernsLane: false)
    rig.pass(.seconds(1))
    rig.answer(rig.sends(), .deferred(reason: "HTTP500", after: .seconds(9)), concernsLane: false)
    rig.pass(.milliseconds(5))
    let parked = rig.parkings().flatMap(\.parkings).sorted { $0.lease.outboxID < $1.lease.outboxID }
    try #require(parked.count == 2)
    #expect(parked[0].attempts == 0 && parked[0].delay == .seconds(17) && parked[0].failures.isEmpty)
    #expect(parked[0].reason == "errno_201")
    #expect(parked[1].attempts == 1 && parked[1].delay == .seconds(9) && parked[1].failures.map(\.attempt) == [1])
  }

  /// The service of these requests rests, as its provider has found out.
  private static func rest(_ rig: inout MachineRig, _ requests: [PushRequest], _ time: Nanoseconds) {
    let results = requests.map {
      var result = PushResult(
        tag: $0.tag, outcome: .deferred(reason: "TimedOut", after: time), sentAt: nil, answeredAt: rig.now)
      result.concernsLane = false
      result.serviceRestsUntil = rig.now + time
      return result
    }
    rig.hear(.provider(.results(results), lane: 0))
  }

  @Test("of the pushes that wait for a service that rests, one asks each half second, and each expires in time")
  func resting() throws {
    var backlog = Backlog(rig: try Self.open())
    backlog.rows = (1...1_000).map { backlog.rig.delivery($0, seconds: 30, token: Self.token("silent.example", $0)) }
    backlog.run(.milliseconds(200)) { $0.sent.count == 200 }
    var asked = 0
    while backlog.rig.now < MachineRig.start + .seconds(31) {
      let requests = backlog.sent
      backlog.sent = []
      Self.rest(&backlog.rig, requests, .milliseconds(500))
      asked += requests.count
      backlog.run(.milliseconds(5))
    }
    // The first 200 were sent before it was known that the service rests.
    #expect((250...270).contains(asked))
    #expect(backlog.settled.count + backlog.parked.count == 1_000)
    #expect(backlog.settled.allSatisfy { $0.outcome == .expired && $0.attempts == 1 && $0.failures.isEmpty })
    #expect(backlog.rig.counters.lanes[0].attempts.total(of: .refused) == 0)
    #expect(backlog.rig.inFlight == 0)
  }

  @Test("after a rest one push asks, and the others follow its answer one after the other")
  func afterRest() throws {
    var backlog = Backlog(rig: try Self.open())
    backlog.rows = (1...200).map { backlog.rig.delivery($0, token: Self.token("a.example", $0)) }
    backlog.run(.milliseconds(200)) { $0.sent.count == 200 }
    Self.rest(&backlog.rig, backlog.sent, .milliseconds(400))
    backlog.sent = []
    backlog.run(.milliseconds(395))
    #expect(backlog.sent.isEmpty)
    backlog.run(.milliseconds(100))
    #expect(backlog.sent.count == 1)
    // The others have their turn half a second later, within 200 ms, and at most ten at a time.
    var taken = 0
    while taken < 200, backlog.rig.now < MachineRig.start + .seconds(5) {
      let requests = backlog.sent
      backlog.sent = []
      #expect(requests.count <= 10)
      taken += requests.count
      backlog.rig.answer(requests)
      backlog.run(.milliseconds(5))
    }
    #expect(taken == 200)
    #expect(backlog.rig.now < MachineRig.start + .milliseconds(1_500))
  }

  @Test("a push that alone may not be sent leaves the question to the next one, at once")
  func suspectAsks() throws {
    var backlog = Backlog(rig: try Self.open())
    backlog.rows = (1...3).map { backlog.rig.delivery($0, token: Self.token("a.example", $0)) }
    backlog.run(.milliseconds(200)) { $0.sent.count == 3 }
    Self.rest(&backlog.rig, backlog.sent, .milliseconds(400))
    backlog.sent = []
    backlog.run(.milliseconds(450)) { $0.sent.count == 1 }
    // While it asks, the next one waits. When it is put off, the service takes pushes to others.
    backlog.rows = [backlog.rig.delivery(4, token: Self.token("a.example", 4))]
    backlog.run(.milliseconds(100))
    try #require(backlog.sent.count == 1)
    backlog.rig.answer(backlog.sent, .deferred(reason: "TimedOut", after: .milliseconds(1_900)), concernsLane: false)
    backlog.rows = [backlog.rig.delivery(5, token: Self.token("a.example", 5))]
    backlog.run(.milliseconds(100))
    #expect(backlog.sent.count == 2)
  }

  @Test("at a shutdown, what waits for a service that rests goes back to the outbox")
  func restingAtTheEnd() throws {
    var rig = try Self.open()
    try rig.bring((1...3).map { rig.delivery($0, token: Self.token("a.example", $0)) })
    Self.rest(&rig, rig.sends(), .milliseconds(400))
    rig.pass(.milliseconds(400))
    let asking = rig.sends()
    #expect(asking.count == 1)
    rig.hear(.drain)
    #expect(rig.withdrawals() == Set(asking.map(\.tag)))
    rig.answer(asking, .refused(reason: "Withdrawn"), concernsLane: false)
    rig.pass(.milliseconds(5))
    let parked = rig.parkings()
    #expect(parked.flatMap(\.parkings).count { $0.attempts == 0 && $0.failures.isEmpty } == 2)
    for (batch, parkings) in parked { rig.hear(.written(batch: batch, .success(.count(parkings.count)))) }
    for (batch, leases) in rig.releases() { rig.hear(.written(batch: batch, .success(.count(leases.count)))) }
    #expect(rig.inFlight == 0)
  }
}

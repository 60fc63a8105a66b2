// The decisions of the sender: what runs in which order, and when a failed request is repeated.

import Runtime
import Testing

@testable import Webhooks

private func at(_ milliseconds: Int64) -> Instant { Instant(nanoseconds: 0) + .milliseconds(milliseconds) }

private func event(_ id: Int64, app: String = "a", attempt: Int32 = 1, tries: Int32 = 0) -> ClaimedWebhook {
  ClaimedWebhook(id: id, app: app, attempt: attempt, tries: tries, event: "evt_\(id)", body: [])
}

extension [WebhookMachine.Action] {
  fileprivate var results: [WebhookResult] {
    flatMap { action -> [WebhookResult] in
      if case .settle(let results) = action { return results }
      return []
    }
  }

  fileprivate var claims: [WebhookMachine.Claim] {
    flatMap { action -> [WebhookMachine.Claim] in
      if case .claim(let claims) = action { return claims }
      return []
    }
  }
}

/// A machine that has registered the apps, and claims.
private func claiming(_ apps: [String] = ["a"]) -> WebhookMachine {
  var machine = WebhookMachine(seed: 1)
  _ = machine.handle(.configure(apps.map { ($0, "url of \($0)", .seconds(5)) }), now: at(0))
  _ = machine.handle(.written, now: at(0))
  return machine
}

@Suite struct WebhookMachineTests {
  @Test func `the configuration is written before anything is claimed`() {
    var machine = WebhookMachine(seed: 1)
    #expect(machine.handle(.configure([("a", "url", .seconds(5))]), now: at(0)) == [.register])
    let claim = WebhookMachine.Claim(app: "a", urlDigest: "url", room: 16, lease: .seconds(20))
    #expect(machine.handle(.written, now: at(1)) == [.claim([claim])])
  }

  @Test func `a lease is longer than a request may take`() {
    let claims = claimsOfFirstTurn(timeout: .seconds(30))
    #expect(claims.map(\.lease) == [.seconds(45)])
  }

  private func claimsOfFirstTurn(timeout: Nanoseconds) -> [WebhookMachine.Claim] {
    var machine = WebhookMachine(seed: 1)
    _ = machine.handle(.configure([("a", "url", timeout)]), now: at(0))
    return machine.handle(.written, now: at(0)).claims
  }

  @Test func `without a webhook the database is told, and asked nothing more`() {
    var machine = WebhookMachine(seed: 1)
    #expect(machine.handle(.configure([]), now: at(0)) == [.register])
    #expect(machine.handle(.written, now: at(1)) == [])
    #expect(machine.handle(.wake, now: at(10_000)) == [])
  }

  @Test func `while nothing is due, the database is asked twice a second`() {
    var machine = claiming()
    #expect(machine.handle(.claimed([]), now: at(10)) == [.wake(at: at(510))])
    #expect(machine.handle(.wake, now: at(509)) == [.wake(at: at(510))])
    #expect(machine.handle(.wake, now: at(510)).claims.count == 1)
  }

  @Test func `a claim's events are sent, and each result is written at once`() {
    var machine = claiming()
    let sent = machine.handle(.claimed([event(1), event(2)]), now: at(0))
    #expect(sent.prefix(2) == [.send(event(1)), .send(event(2))])
    let first = machine.handle(.answered(event(1), .status(204, retryAfter: nil)), now: at(20))
    #expect(first.results.map(\.id) == [1])
    #expect(first.results.map(\.verdict) == [.acknowledged])
    // While that is written, another one comes.
    #expect(machine.handle(.answered(event(2), .status(200, retryAfter: nil)), now: at(21)) == [])
    #expect(machine.handle(.written, now: at(22)).results.map(\.id) == [2])
  }

  @Test func `after a result the next event of its call is claimed without waiting`() {
    var machine = claiming()
    _ = machine.handle(.claimed([event(1)]), now: at(0))
    _ = machine.handle(.answered(event(1), .status(200, retryAfter: nil)), now: at(5))
    #expect(machine.handle(.written, now: at(6)).claims.map(\.room) == [16])
  }

  @Test func `an app with all its requests under way is not claimed for, others are`() {
    var machine = claiming(["a", "b"])
    _ = machine.handle(.claimed((1...16).map { event($0) }), now: at(0))
    #expect(machine.handle(.wake, now: at(600)).claims.map(\.app) == ["b"])
    _ = machine.handle(.claimed((21...36).map { event($0, app: "b") }), now: at(601))
    #expect(machine.handle(.wake, now: at(2000)) == [])
    _ = machine.handle(.answered(event(1), .status(200, retryAfter: nil)), now: at(2001))
    #expect(machine.handle(.written, now: at(2002)).claims.map(\.room) == [1])
  }

  @Test func `an event that is claimed again while it is sent takes no more room, and is due at once if that fails`() {
    var machine = claiming()
    #expect(machine.handle(.claimed([event(1), event(2)]), now: at(1)).contains(.send(event(1))))
    _ = machine.handle(.wake, now: at(501))
    let again = machine.handle(.claimed([event(1, attempt: 2), event(2, attempt: 2)]), now: at(502))
    #expect(again == [.wake(at: at(1002))])
    #expect(machine.inFlightCount == 2)

    let failed = machine.handle(.answered(event(1), .status(500, retryAfter: nil)), now: at(503))
    #expect(failed.results.map(\.attempt) == [2])
    #expect(failed.results.map(\.delay) == [.zero])
    _ = machine.handle(.answered(event(2), .status(200, retryAfter: nil)), now: at(504))
    let written = machine.handle(.written, now: at(505))
    #expect(written.results.map(\.verdict) == [.acknowledged])
    #expect(machine.handle(.written, now: at(506)).claims.map(\.room) == [WebhookMachine.inFlightMax])
  }

  @Test func `what the receiver asks for is kept to also by an event that is due at once`() {
    var machine = claiming()
    _ = machine.handle(.claimed([event(1)]), now: at(1))
    _ = machine.handle(.wake, now: at(501))
    _ = machine.handle(.claimed([event(1, attempt: 2)]), now: at(502))
    let results = machine.handle(.answered(event(1), .status(503, retryAfter: .seconds(600))), now: at(503)).results
    #expect(results.map(\.delay) == [.seconds(600)])
    #expect(results.map(\.pause) == [.seconds(600)])
  }

  @Test(
    arguments: [
      (0, 5), (1, 30), (2, 120), (3, 600), (4, 1800), (5, 3600), (6, 3600), (40, 3600),
    ] as [(Int32, Int64)])
  func `a failed event waits longer each time, up to an hour`(tries: Int32, seconds: Int64) {
    var machine = claiming()
    let failed = event(1, attempt: 7, tries: tries)
    _ = machine.handle(.claimed([failed]), now: at(0))
    let result = machine.handle(.answered(failed, .none(reason: "TimedOut")), now: at(1)).results[0]
    #expect(result.verdict == .retry)
    #expect(result.reason == "TimedOut")
    #expect(result.status == nil)
    #expect((seconds * 800...seconds * 1200).contains(result.delay.milliseconds))
  }

  @Test(arguments: [201, 202, 299] as [UInt16])
  func `every status of success is an acknowledgement`(status: UInt16) {
    #expect(verdict(.status(status, retryAfter: nil)) == .acknowledged)
  }

  @Test(arguments: [100, 199, 300, 301, 302, 307, 308, 400, 401, 404, 409, 429, 500, 503] as [UInt16])
  func `every other status is a failure, redirects too`(status: UInt16) {
    #expect(verdict(.status(status, retryAfter: nil)) == .retry)
  }

  @Test func `410 ends the webhook`() {
    #expect(verdict(.status(410, retryAfter: nil)) == .gone)
  }

  @Test func `410 is logged once for each URL, until an event is acknowledged`() {
    var machine = claiming()
    func answer(_ id: Int64, _ status: UInt16) -> WebhookMachine.Action? {
      _ = machine.handle(.claimed([event(id)]), now: at(0))
      let action = machine.handle(.answered(event(id), .status(status, retryAfter: nil)), now: at(1)).first
      _ = machine.handle(.written, now: at(2))
      return action
    }
    #expect(answer(1, 410) == .tellGone(app: "a"))
    #expect(answer(2, 410) != .tellGone(app: "a"))
    _ = machine.handle(.configure([("a", "other", .seconds(5))]), now: at(3))
    #expect(answer(3, 410) == .tellGone(app: "a"))
    #expect(answer(4, 200) == .tellRecovered(app: "a"))
    #expect(answer(5, 410) == .tellGone(app: "a"))
  }

  @Test func `a result has the URL to which its request was sent, also if the configuration has changed since`() {
    var machine = WebhookMachine(seed: 1)
    _ = machine.handle(.configure([("a", "former", .seconds(5))]), now: at(0))
    _ = machine.handle(.written, now: at(0))
    _ = machine.handle(.claimed([event(1)]), now: at(0))
    #expect(machine.handle(.configure([("a", "new", .seconds(5))]), now: at(1)) == [.register])
    _ = machine.handle(.answered(event(1), .status(410, retryAfter: nil)), now: at(2))
    #expect(machine.handle(.written, now: at(3)).results.map(\.urlDigest) == ["former"])
    #expect(machine.handle(.written, now: at(4)).claims.map(\.urlDigest) == ["new"])
  }

  private func verdict(_ answer: WebhookAnswer) -> WebhookResult.Verdict? {
    var machine = claiming()
    _ = machine.handle(.claimed([event(1)]), now: at(0))
    return machine.handle(.answered(event(1), answer), now: at(1)).results.first?.verdict
  }

  @Test func `Retry-After is kept to, up to an hour, and pauses the app if it is overloaded`() {
    func result(_ status: UInt16, _ seconds: Int64) -> WebhookResult {
      var machine = claiming()
      _ = machine.handle(.claimed([event(1)]), now: at(0))
      return machine.handle(.answered(event(1), .status(status, retryAfter: .seconds(seconds))), now: at(1)).results[0]
    }
    #expect(result(429, 90).delay == .seconds(90))
    #expect(result(429, 90).pause == .seconds(90))
    #expect(result(503, 86_400).pause == .seconds(3600))
    #expect(result(500, 90).delay == .seconds(90))
    #expect(result(500, 90).pause == nil)
    // Never sooner than without it.
    #expect(result(503, 0).delay >= .seconds(4))
  }

  @Test func `failures are told once, and so is their end`() {
    var machine = claiming()
    _ = machine.handle(.claimed([event(1), event(2), event(3)]), now: at(0))
    let refused = WebhookAnswer.status(500, retryAfter: nil)
    #expect(machine.handle(.answered(event(1), refused), now: at(1)).first == .tellFailing(app: "a", answer: refused))
    #expect(machine.handle(.answered(event(2), refused), now: at(2)) == [])
    #expect(
      machine.handle(.answered(event(3), .status(200, retryAfter: nil)), now: at(3)) == [.tellRecovered(app: "a")])
  }

  @Test func `results that could not be written are written later, before anything is claimed`() {
    var machine = claiming()
    _ = machine.handle(.claimed([event(1)]), now: at(0))
    _ = machine.handle(.answered(event(1), .status(200, retryAfter: nil)), now: at(1))
    #expect(machine.handle(.databaseFailed, now: at(2)) == [.wake(at: at(1002))])
    #expect(machine.handle(.wake, now: at(1002)).results.map(\.id) == [1])
    #expect(machine.handle(.databaseFailed, now: at(1003)) == [.wake(at: at(3003))])
    #expect(machine.handle(.wake, now: at(3003)).results.map(\.id) == [1])
    #expect(machine.handle(.written, now: at(3004)).claims.count == 1)
  }

  @Test func `a configuration that could not be written is written later`() {
    var machine = WebhookMachine(seed: 1)
    _ = machine.handle(.configure([("a", "url", .seconds(5))]), now: at(0))
    _ = machine.handle(.databaseFailed, now: at(1))
    #expect(machine.handle(.wake, now: at(1001)) == [.register])
  }

  @Test func `apps that are locked are registered again every second, and the others are served meanwhile`() {
    var machine = WebhookMachine(seed: 1)
    _ = machine.handle(.configure([("a", "url", .seconds(5)), ("b", "url", .seconds(5))]), now: at(0))
    #expect(machine.handle(.registeredInPart, now: at(10)).claims.map(\.app) == ["a", "b"])
    #expect(machine.handle(.claimed([]), now: at(600)) == [.wake(at: at(1010))])
    #expect(machine.handle(.wake, now: at(1010)) == [.register])
    #expect(machine.handle(.written, now: at(1011)) == [.wake(at: at(1100))])
    #expect(machine.handle(.wake, now: at(1100)).claims.count == 2)
    #expect(machine.handle(.claimed([]), now: at(2100)) == [.wake(at: at(2600))])
  }

  @Test func `apps that are locked are registered again also if nothing can be claimed`() {
    var machine = WebhookMachine(seed: 1)
    _ = machine.handle(.configure([]), now: at(0))
    #expect(machine.handle(.registeredInPart, now: at(10)) == [.wake(at: at(1010))])
    #expect(machine.handle(.wake, now: at(1010)) == [.register])
    #expect(machine.handle(.written, now: at(1011)) == [])
    var full = WebhookMachine(seed: 1)
    _ = full.handle(.configure([("a", "url", .seconds(5))]), now: at(0))
    _ = full.handle(.registeredInPart, now: at(10))
    let claimed = full.handle(.claimed((1...16).map { event(Int64($0)) }), now: at(20))
    #expect(claimed.last == .wake(at: at(520)))
    #expect(full.handle(.wake, now: at(520)) == [.wake(at: at(1010))])
    #expect(full.handle(.wake, now: at(1010)) == [.register])
  }

  @Test func `a withdrawn request is left to its lease`() {
    var machine = claiming()
    _ = machine.handle(.claimed([event(1)]), now: at(0))
    #expect(machine.handle(.answered(event(1), .withdrawn), now: at(1)).results == [])
    #expect(machine.inFlightCount == 0)
  }

  @Test func `a stop waits for requests under way, and writes their results`() {
    var machine = claiming()
    _ = machine.handle(.claimed([event(1)]), now: at(0))
    #expect(machine.handle(.stop, now: at(1)) == [])
    #expect(machine.handle(.answered(event(1), .status(200, retryAfter: nil)), now: at(2)).results.count == 1)
    #expect(machine.handle(.written, now: at(3)) == [.close])
    #expect(machine.handle(.wake, now: at(4)) == [])
  }

  @Test func `a stop with a limit leaves the rest to other gateways`() {
    var machine = claiming()
    _ = machine.handle(.claimed([event(1)]), now: at(0))
    _ = machine.handle(.stop, now: at(1))
    #expect(machine.handle(.abandon, now: at(2)) == [.close])
    #expect(machine.handle(.answered(event(1), .status(200, retryAfter: nil)), now: at(3)) == [])
  }
}

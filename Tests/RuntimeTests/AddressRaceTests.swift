// Tests of the order and the times in which addresses of a host are tried.

import Testing

@testable import Runtime

/// A race in virtual time between addresses with given behaviours.
private struct Track {
  enum Address {
    /// No SYN is answered.
    case dead
    case refuses(after: Nanoseconds)
    /// TCP answers, TLS does not.
    case mute(after: Nanoseconds)
    /// TCP answers, TLS fails.
    case untrusted(after: Nanoseconds)
    case good(reached: Nanoseconds, open: Nanoseconds)
  }

  var attempts: [Int] = []
  var attemptedAt: [Nanoseconds] = []
  var abandoned: [Int] = []
  var timedOut: [Int] = []
  var winner: Int??
  var finishedAt = Nanoseconds.zero

  init(_ addresses: [Address], _ settings: AddressRace.Settings = AddressRace.Settings()) {
    var race = AddressRace(count: addresses.count, settings: settings)
    let start = Instant(nanoseconds: 1_000_000_000)
    var agenda: [(at: Instant, order: Int, event: AddressRace.Event)] = [(start, 0, .started)]
    var order = 0
    while winner == nil, let next = agenda.min(by: { ($0.at, $0.order) < ($1.at, $1.order) }) {
      agenda.removeAll { $0.order == next.order }
      var actions: [AddressRace.Action] = []
      race.handle(next.event, now: next.at, &actions)
      func plan(_ delay: Nanoseconds, _ event: AddressRace.Event) {
        order += 1
        agenda.append((next.at + delay, order, event))
      }
      for action in actions {
        switch action {
        case .attempt(let place):
          attempts.append(place)
          attemptedAt.append(next.at - start)
          switch addresses[place] {
          case .dead: break
          case .refuses(let after): plan(after, .failed(place))
          case .mute(let after): plan(after, .reached(place))
          case .untrusted(let after):
            plan(after, .reached(place))
            plan(after + .milliseconds(20), .failed(place))
          case .good(let reached, let open):
            plan(reached, .reached(place))
            plan(open, .opened(place))
          }
        case .abandon(let place):
          abandoned.append(place)
          agenda.removeAll { [.reached(place), .opened(place), .failed(place)].contains($0.event) }
        case .timeOut(let place):
          timedOut.append(place)
          agenda.removeAll { [.reached(place), .opened(place), .failed(place)].contains($0.event) }
        case .wake(let at): plan(at - next.at, .woken)
        case .finish(let place):
          winner = .some(place)
          finishedAt = next.at - start
        }
      }
    }
  }
}

private func ms(_ count: Int64) -> Nanoseconds { .milliseconds(count) }

@Suite struct AddressRaceTests {
  @Test func `eight dead addresses before a good one delay the connection by two seconds`() {
    let track = Track([Track.Address](repeating: .dead, count: 8) + [.good(reached: ms(10), open: ms(30))])
    #expect(track.winner == 8)
    #expect(track.attemptedAt == (0...8).map { ms(250 * $0) })
    #expect(track.finishedAt == ms(2030))
    #expect(track.abandoned == Array(0..<8), "no socket is left behind")
  }

  @Test func `addresses that refuse the connection cause no delay`() {
    let track = Track([.refuses(after: ms(1)), .refuses(after: ms(1)), .good(reached: ms(10), open: ms(30))])
    #expect(track.winner == 2)
    #expect(track.finishedAt == ms(32))
  }

  @Test func `no second address is tried during a slow handshake`() {
    let track = Track([.good(reached: ms(200), open: ms(900)), .good(reached: ms(1), open: ms(2))])
    #expect(track.winner == 0)
    #expect(track.attempts == [0])
  }

  @Test func `an address that answers only over TCP has one second for its handshake`() {
    let track = Track([.mute(after: ms(5)), .good(reached: ms(10), open: ms(30))])
    #expect(track.winner == 1)
    #expect(track.finishedAt == ms(5 + 1000 + 30))
  }

  @Test func `a failed handshake counts as a failure of its address`() {
    let track = Track([.untrusted(after: ms(5)), .good(reached: ms(10), open: ms(30))])
    #expect(track.winner == 1)
    #expect(track.finishedAt == ms(25 + 30))
  }

  @Test func `the first address that opens is used, not the first that was tried`() {
    let track = Track([.good(reached: ms(400), open: ms(900)), .good(reached: ms(10), open: ms(30))])
    #expect(track.winner == 1)
    #expect(track.abandoned == [0])
  }

  @Test func `a failure of one address does not shorten the handshake of another`() {
    let track = Track([
      .refuses(after: ms(260)), .good(reached: ms(5), open: ms(500)), .good(reached: ms(1), open: ms(2)),
    ])
    #expect(track.attempts == [0, 1])
    #expect(track.winner == 1)
  }

  @Test func `the race ends when no address is left`() {
    let none = Track([])
    #expect(none.winner == .some(nil))
    let dead = Track([.dead, .refuses(after: ms(1)), .dead])
    #expect(dead.winner == .some(nil))
    #expect(dead.timedOut == [0, 2])
    #expect(dead.finishedAt == ms(250 + 1 + 4000))
  }
}

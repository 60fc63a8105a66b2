// Tests of when a lane stops, tries, and goes on.

import PushModel
import Queue
import Runtime
import Testing

private func at(_ milliseconds: Int64) -> Instant { Instant(nanoseconds: 0) + .milliseconds(milliseconds) }

@Suite("Lane circuit")
struct LaneCircuitTests {
  private func token(_ number: Int) -> ArraySlice<UInt8> { Array("token-\(number)".utf8)[...] }

  /// A circuit that has just opened.
  private func opened() -> LaneCircuit {
    var circuit = LaneCircuit()
    for number in 1...2 { _ = circuit.didHear(.unauthorized, about: token(number), at(0)) }
    return circuit
  }

  @Test("it opens when two tokens have failed within a minute, with no success between them")
  func failures() {
    var circuit = LaneCircuit()
    #expect(circuit.didHear(.failing, about: token(1), at(0)) == nil)
    #expect(circuit.didHear(.working, about: token(3), at(1)) == nil)
    #expect(circuit.didHear(.failing, about: token(2), at(2)) == nil)
    #expect(circuit.didHear(.failing, about: token(1), at(60_002)) == nil, "the other one is too long ago")
    #expect(circuit.didHear(.failing, about: token(2), at(120_001)) == .opened(until: at(121_001)))
  }

  @Test("a lost connection with a hundred requests counts as one failure")
  func lostConnections() {
    var circuit = LaneCircuit()
    for number in 0..<100 { #expect(circuit.didHear(.failingTogether(7), about: token(number), at(0)) == nil) }
    #expect(circuit.didHear(.failingTogether(8), about: token(100), at(0)) != nil)
  }

  @Test("failures of a single token do not open it, whatever the reason")
  func oneToken() {
    var circuit = LaneCircuit()
    for connection in 0..<50 {
      #expect(circuit.didHear(.failing, about: token(1), at(0)) == nil)
      #expect(circuit.didHear(.unauthorized, about: token(1), at(0)) == nil)
      #expect(circuit.didHear(.failingTogether(connection), about: token(1), at(0)) == nil)
    }
    #expect(circuit.didHear(.failing, about: token(2), at(0)) != nil)
  }

  @Test("requests without an answer do not open it if the provider has answered since they were sent")
  func unanswered() {
    var circuit = LaneCircuit()
    func fail(_ number: Int, sentAt: Int64, at now: Int64) -> Bool {
      circuit.didHear(.failing, about: token(number), unansweredSince: at(sentAt), at(now)) != nil
    }
    #expect(circuit.didHear(.working, at(5000)) == nil)
    for number in 0..<100 { #expect(!fail(number, sentAt: 4999, at: 10_000)) }
    for number in 1...2 { #expect(fail(number, sentAt: 5000, at: 10_000) == (number == 2)) }
    // What was sent before it became half-open says nothing of how the provider is now.
    circuit.advance(at(11_000))
    #expect(!fail(3, sentAt: 10_999, at: 12_000))
    #expect(circuit.state == .halfOpen)
    #expect(fail(3, sentAt: 11_000, at: 12_000))
  }

  @Test("when the cause may be repaired, a delivery is tried at once; a closed circuit stays closed")
  func tryNow() {
    var circuit = LaneCircuit()
    circuit.tryNow(at(0))
    #expect(circuit.state == .closed)
    circuit = opened()
    circuit.tryNow(at(500))
    #expect(circuit.state == .halfOpen && circuit.wait(at(500)) == .zero)
    #expect(circuit.didHear(.failing, unansweredSince: at(499), at(700)) == nil, "it was sent before the repair")
    #expect(circuit.didHear(.failing, unansweredSince: at(500), at(700)) != nil)
  }

  @Test("a delivery tries every second, and a success closes it")
  func probes() {
    var circuit = opened()
    for second in Int64(0)..<6 {
      #expect(circuit.state == .open(until: at(second * 1000 + 1000)))
      circuit.advance(at(second * 1000 + 1000))
      #expect(circuit.state == .halfOpen)
      #expect(circuit.didHear(.failing, about: token(10 + Int(second)), at(second * 1000 + 1000)) != nil)
    }
    #expect(circuit.didHear(.working, at(6_500)) == .closed)
    #expect(circuit.state == .closed)
    #expect(circuit.wait(at(6_500)) == .zero)
  }

  @Test("a try at a token that had failed before is followed by another one soon, but each time later")
  func knownToken() {
    var circuit = opened()
    #expect(circuit.didHear(.failing, about: token(3), at(10)) == nil, "it is open")
    var now: Int64 = 1000
    for (number, wait) in [(1, 250), (2, 500), (3, 1000), (1, 1000), (4, 1000), (4, 250), (1, 500)] as [(Int, Int64)] {
      circuit.advance(at(now))
      #expect(circuit.didHear(.failing, about: token(number), at(now)) == .opened(until: at(now + wait)))
      now += wait
    }
    #expect(circuit.didHear(.working, at(now)) == .closed)
    for (number, wait) in [(1, nil), (2, 1000), (1, 250)] as [(Int, Int64?)] {
      circuit.advance(at(now))
      let change = wait.map { LaneCircuit.Change.opened(until: at(now + $0)) }
      #expect(circuit.didHear(.failing, about: token(number), at(now)) == change)
      now += wait ?? 0
    }
  }

  @Test("a provider that is down gets at most two tries more than one a second, also at the same few tokens")
  func rate() {
    var circuit = opened()
    var tries = 0
    for now in stride(from: Int64(0), to: 60_000, by: 10) {
      circuit.advance(at(now))
      guard circuit.state == .halfOpen else { continue }
      tries += 1
      _ = circuit.didHear(.failing, about: token(1 + tries % 2), at(now))
    }
    #expect(tries == 59 + 2)
  }

  @Test("failures while it is open do not change its state")
  func late() {
    var circuit = opened()
    #expect(circuit.didHear(.failing, at(10)) == nil)
    #expect(circuit.state == .open(until: at(1000)))
  }
}

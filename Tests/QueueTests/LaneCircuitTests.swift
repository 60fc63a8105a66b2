// Tests of when a lane stops, tries, and goes on.

import PushModel
import Queue
import Runtime
import Testing

private func at(_ milliseconds: Int64) -> Instant { Instant(nanoseconds: 0) + .milliseconds(milliseconds) }

@Suite("Lane circuit")
struct LaneCircuitTests {
  @Test("it opens after a number of successive failures, and a success resets the count")
  func failures() {
    var circuit = LaneCircuit()
    for _ in 0..<19 { #expect(circuit.didHear(.failing, at(0)) == nil) }
    #expect(circuit.didHear(.working, at(0)) == nil)
    for _ in 0..<19 { #expect(circuit.didHear(.failing, at(0)) == nil) }
    #expect(circuit.didHear(.failing, at(0)) != nil)
    #expect(circuit.state == .open(until: at(1000)))
  }

  @Test("a lost connection with a hundred requests counts as one failure")
  func lostConnections() {
    var circuit = LaneCircuit()
    for _ in 0..<100 { #expect(circuit.didHear(.lost(connection: 7), at(0)) == nil) }
    // The results of two connections may be interleaved.
    for connection in 8..<27 {
      for lost in [connection - 1, connection, connection - 1] {
        #expect(
          (circuit.didHear(.lost(connection: lost), at(0)) != nil) == (lost == 26), "the twentieth connection opens it")
      }
    }
  }

  @Test("failures of a single delivery do not open it, whatever the reason")
  func oneDelivery() {
    var circuit = LaneCircuit()
    let poisoned = DeliveryKey(outboxID: 1, pushNumber: 0)
    for connection in 0..<50 {
      #expect(circuit.didHear(.failing, about: poisoned, at(0)) == nil)
      #expect(circuit.didHear(.lost(connection: connection), about: poisoned, at(0)) == nil)
    }
    // Three others that fail as well are enough.
    for other in Int64(2)...4 {
      for failure in 1...5 {
        let key = DeliveryKey(outboxID: other, pushNumber: 0)
        #expect((circuit.didHear(.failing, about: key, at(0)) != nil) == (other == 4 && failure == 5))
      }
    }
  }

  @Test("requests without an answer do not open it if the provider has answered since they were sent")
  func unanswered() {
    var circuit = LaneCircuit()
    func fail(sentAt: Int64, at now: Int64) -> Bool {
      circuit.didHear(.failing, unansweredSince: at(sentAt), at(now)) != nil
    }
    #expect(circuit.didHear(.working, at(5000)) == nil)
    for _ in 0..<100 { #expect(!fail(sentAt: 4999, at: 10_000)) }
    for number in 1...20 { #expect(fail(sentAt: 5000, at: 10_000) == (number == 20)) }
    // What was sent before it became half-open says nothing of how the provider is now.
    circuit.advance(at(11_000))
    #expect(!fail(sentAt: 10_999, at: 12_000))
    #expect(circuit.state == .halfOpen)
    #expect(fail(sentAt: 11_000, at: 12_000))
  }

  @Test("refused credentials open it at once")
  func credentials() {
    var circuit = LaneCircuit()
    #expect(circuit.didHear(.unauthorized, at(0)) != nil)
  }

  @Test("when the cause may be repaired, a delivery is tried at once; a closed circuit stays closed")
  func tryNow() {
    var circuit = LaneCircuit()
    circuit.tryNow(at(0))
    #expect(circuit.state == .closed)
    _ = circuit.didHear(.unauthorized, at(0))
    circuit.tryNow(at(500))
    #expect(circuit.state == .halfOpen && circuit.wait(at(500)) == .zero)
    #expect(circuit.didHear(.failing, unansweredSince: at(499), at(700)) == nil, "it was sent before the repair")
    #expect(circuit.didHear(.failing, unansweredSince: at(500), at(700)) != nil)
  }

  @Test("each failed probe doubles the time it stays open, up to 15 s; a success closes it")
  func probes() {
    var circuit = LaneCircuit()
    var now = at(0)
    var waits: [Int64] = []
    _ = circuit.didHear(.unauthorized, now)
    for _ in 0..<6 {
      waits.append(circuit.wait(now).milliseconds)
      now = now + circuit.wait(now)
      circuit.advance(now)
      #expect(circuit.state == .halfOpen)
      #expect(circuit.didHear(.failing, now) != nil)
    }
    #expect(waits == [1000, 2000, 4000, 8000, 15000, 15000])
    #expect(circuit.didHear(.working, now) == .closed)
    #expect(circuit.state == .closed)
    #expect(circuit.wait(now) == .zero)
  }

  @Test("failures while it is open change nothing")
  func late() {
    var circuit = LaneCircuit()
    _ = circuit.didHear(.unauthorized, at(0))
    #expect(circuit.didHear(.failing, at(10)) == nil)
    #expect(circuit.state == .open(until: at(1000)))
  }
}

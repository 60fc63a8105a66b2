// How often one address may show wrong keys, and that nobody else pays for it.

import Runtime
import Testing

@testable import Gateway

@Suite struct LoginLimitsTests {
  private let guesser = IPAddress("192.0.2.1")!
  private let other = IPAddress("192.0.2.2")!
  private let start = Instant(nanoseconds: 0)

  @Test func `answers that are held back are few, of all addresses together`() {
    var limits = LoginLimits()
    func peer(_ number: Int) -> IPAddress { IPAddress(high: 0, low: UInt64(number), isIPv6: false) }
    for number in 1...LoginLimits.heldInAllMax {
      _ = limits.failed(peer(number), start)
      #expect(limits.mayHold)
    }
    _ = limits.failed(peer(0), start)
    #expect(!limits.mayHold)
    limits.answered(peer(0))
    #expect(limits.mayHold)
  }

  @Test func `a guesser is slowed down, and nobody else`() {
    let limits = Limits()
    var admitted = 0
    for _ in 0..<1000 where limits.tries(guesser, start) { admitted += 1 }
    #expect(admitted == 1)
    #expect(limits.tries(other, start) && limits.tries(.unknown, start))
    #expect(limits.tries(guesser, start + .seconds(1)))
  }

  @Test func `few wrong tries of one address wait for their answers`() {
    let limits = Limits()
    var now = start
    for count in 1...LoginLimits.heldMax {
      now = now + .seconds(1)
      #expect(limits.tries(guesser, now))
      #expect(limits.failed(guesser, now) == count)
    }
    now = now + .seconds(1)
    #expect(!limits.tries(guesser, now) && limits.tries(other, now))
    limits.answered(guesser)
    #expect(limits.tries(guesser, now))
  }

  @Test func `all of an IPv6 network is one guesser`() {
    let limits = Limits()
    #expect(limits.tries(IPAddress("2001:db8::1")!, start))
    #expect(!limits.tries(IPAddress("2001:db8::2")!, start))
    #expect(limits.tries(IPAddress("2001:db8:0:1::2")!, start))
  }

  @Test func `a good key with each request is never too often, a wrong one is`() {
    let limits = Limits()
    for _ in 0..<1000 { #expect(limits.mayShow(other, start)) }
    #expect(limits.mayShow(guesser, start) && limits.showed(guesser, start) == 1)
    #expect(!limits.mayShow(guesser, start) && limits.mayShow(other, start))
    #expect(limits.mayShow(guesser, start + .seconds(1)))
  }

  @Test func `good keys are never too often`() {
    let limits = Limits()
    for _ in 0..<1000 {
      #expect(limits.tries(other, start))
      limits.succeeded(other)
    }
  }

  @Test func `failures are forgotten by a good key, and after a while`() {
    let limits = Limits()
    #expect(limits.failed(guesser, start) == 1 && limits.failed(guesser, start) == 2)
    limits.succeeded(guesser)
    #expect(limits.failed(guesser, start) == 1)
    for _ in 0..<3 { limits.answered(guesser) }
    #expect(limits.failed(guesser, start + LoginLimits.memory) == 1)
  }

  @Test func `many addresses cost a bounded memory`() {
    let limits = Limits()
    for number in 0..<3 * LoginLimits.peersMax {
      let peer = IPAddress("10.\(number >> 16).\(number >> 8 & 255).\(number & 255)")!
      _ = limits.failed(peer, start + .milliseconds(Int64(number)))
    }
    #expect(limits.count == LoginLimits.peersMax)
  }
}

/// Limits that an expectation may change.
private final class Limits {
  private var limits = LoginLimits()
  var count: Int { limits.count }
  func tries(_ peer: IPAddress, _ now: Instant) -> Bool { limits.tries(peer, now) }
  func mayShow(_ peer: IPAddress, _ now: Instant) -> Bool { limits.mayShow(peer, now) }
  func failed(_ peer: IPAddress, _ now: Instant) -> Int { limits.failed(peer, now) }
  func showed(_ peer: IPAddress, _ now: Instant) -> Int { limits.showed(peer, now) }
  func answered(_ peer: IPAddress) { limits.answered(peer) }
  func succeeded(_ peer: IPAddress) { limits.succeeded(peer) }
}

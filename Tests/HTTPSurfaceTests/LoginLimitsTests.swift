// How often one address may show wrong keys, and that this has no effect on other addresses.

import Runtime
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite struct LoginLimitsTests {
  private let guesser = IPAddress("192.0.2.1")!
  private let other = IPAddress("192.0.2.2")!
  private let start = Instant(nanoseconds: 0)

  @Test func `the number of delayed answers is limited for all addresses together`() {
    let limits = Limits()
    func peer(_ number: Int) -> IPAddress { IPAddress(high: 0, low: UInt64(number), isIPv6: false) }
    for number in 1...LoginLimits.heldInAllMax { #expect(limits.failed(peer(number), start) == 1) }
    #expect(limits.failed(peer(0), start) == nil)
    limits.answered(peer(1))
    #expect(limits.failed(peer(100), start) == 1)
    #expect(limits.failed(peer(101), start) == nil)
  }

  @Test func `a guesser is slowed down, and no other address is`() {
    let limits = Limits()
    #expect((0..<1000).compactMap { _ in limits.failed(guesser, start) } == [1])
    #expect(limits.failed(other, start) == 1 && limits.failed(.unknown, start) == 1)
    #expect(limits.failed(guesser, start + .seconds(1)) == 2)
  }

  @Test func `the number of delayed answers is limited for each address`() {
    let limits = Limits()
    var now = start
    for count in 1...LoginLimits.heldMax {
      now = now + .seconds(1)
      #expect(limits.failed(guesser, now) == count)
    }
    now = now + .seconds(1)
    #expect(limits.failed(guesser, now) == nil && limits.failed(other, now) == 1)
    limits.answered(guesser)
    #expect(limits.failed(guesser, now) == LoginLimits.heldMax + 1)
  }

  @Test func `an IPv6 network is one guesser`() {
    let limits = Limits()
    #expect(limits.failed(IPAddress("2001:db8::1")!, start) == 1)
    #expect(limits.failed(IPAddress("2001:db8::2")!, start) == nil)
    #expect(limits.failed(IPAddress("2001:db8:0:1::2")!, start) == 1)
  }

  @Test func `failures are forgotten after a good key, and after some time`() {
    let limits = Limits()
    func fails(at instant: Instant) -> Int? {
      defer { limits.answered(guesser) }
      return limits.failed(guesser, instant)
    }
    #expect(fails(at: start) == 1 && fails(at: start + .seconds(1)) == 2)
    limits.succeeded(guesser)
    #expect(fails(at: start + .seconds(2)) == 1 && fails(at: start + .seconds(3)) == 2)
    #expect(fails(at: start + .seconds(3) + LoginLimits.memory) == 1)
  }

  @Test func `many addresses use a limited amount of memory`() {
    let limits = Limits()
    for number in 0..<3 * LoginLimits.peersMax {
      let peer = IPAddress("10.\(number >> 16).\(number >> 8 & 255).\(number & 255)")!
      if limits.failed(peer, start + .milliseconds(Int64(number))) != nil { limits.answered(peer) }
    }
    #expect(limits.count == LoginLimits.peersMax)
  }
}

/// A reference to limits, because `#expect` cannot change a value.
private final class Limits {
  private var limits = LoginLimits()
  var count: Int { limits.count }
  func failed(_ peer: IPAddress, _ now: Instant) -> Int? { limits.failed(peer, now) }
  func answered(_ peer: IPAddress) { limits.answered(peer) }
  func succeeded(_ peer: IPAddress) { limits.succeeded(peer) }
}

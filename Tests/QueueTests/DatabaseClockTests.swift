import Runtime
import Testing

@testable import Queue

private func at(_ milliseconds: Int64) -> Instant { Instant(nanoseconds: 0) + .milliseconds(milliseconds) }

@Suite("The database's clock")
struct DatabaseClockTests {
  @Test("nothing is known before the first observation")
  func unknown() {
    #expect(DatabaseClock().microseconds(at: at(5)) == nil)
  }

  @Test("the fastest answer gives the best estimate")
  func fastest() {
    var clock = DatabaseClock()
    clock.observe(microseconds: 1_000_000, at(30))
    #expect(clock.microseconds(at: at(30)) == 1_000_000)
    clock.observe(microseconds: 1_010_000, at(35))
    #expect(clock.microseconds(at: at(35)) == 1_010_000)
    clock.observe(microseconds: 1_020_000, at(80))
    #expect(clock.microseconds(at: at(80)) == 1_055_000)
  }

  @Test("an old estimate loses its value: clocks drift")
  func drift() {
    var clock = DatabaseClock()
    clock.observe(microseconds: 0, at(0))
    clock.observe(microseconds: 10_990_000, at(11_000))
    #expect(clock.microseconds(at: at(11_000)) == 11_000_000)
    clock.observe(microseconds: 21_990_000, at(22_000))
    #expect(clock.microseconds(at: at(22_000)) == 21_990_000)
  }

  @Test("a clock that was set, or another server's clock, is accepted at once, in both directions")
  func jump() {
    var clock = DatabaseClock()
    clock.observe(microseconds: 100_000_000, at(0))
    clock.observe(microseconds: 50_100_000, at(100))
    #expect(clock.microseconds(at: at(100)) == 50_100_000)
    clock.observe(microseconds: 900_200_000, at(200))
    #expect(clock.microseconds(at: at(200)) == 900_200_000)
  }
}

import Runtime
import Testing

@Suite("Durations")
struct NanosecondsTests {
  @Test("what overflows is the longest duration, or its opposite")
  func overflow() {
    let (longest, opposite) = (Nanoseconds(.max), Nanoseconds(.min))
    #expect(Nanoseconds.microseconds(.max) == longest && Nanoseconds.microseconds(.min) == opposite)
    #expect(Nanoseconds.milliseconds(.max / 2) == longest && Nanoseconds.seconds(.min / 2) == opposite)
    #expect(longest + Nanoseconds(1) == longest && opposite + Nanoseconds(-1) == opposite)
    #expect(longest - Nanoseconds(-1) == longest && opposite - Nanoseconds(1) == opposite)
    #expect(Nanoseconds.zero - opposite == longest)
    #expect(longest * 2 == longest && longest * -2 == opposite && opposite * -1 == longest)
    #expect(Nanoseconds.seconds(3) == Nanoseconds(3_000_000_000) && Nanoseconds(7) - Nanoseconds(9) == Nanoseconds(-2))
  }

  @Test("an instant moves to the ends of time at most")
  func instants() {
    let now = Instant(nanoseconds: 5)
    #expect(now - Nanoseconds(.min) == .distantFuture)
    #expect(now - Nanoseconds(.max) == Instant(nanoseconds: 5 - .max))
    #expect((now - Nanoseconds(10)) - Nanoseconds(.max) == Instant(nanoseconds: .min))
    #expect(.distantFuture - Instant(nanoseconds: -1) == Nanoseconds(.max))
  }
}

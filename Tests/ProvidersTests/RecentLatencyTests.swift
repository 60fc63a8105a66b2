// Tests of the latencies that a lane remembers.

import Runtime
import Testing

@testable import Providers

@Suite("Recent latency", .timeLimit(.minutes(10))) struct RecentLatencyTests {
  @Test(arguments: [Int64(0), 1, 3, 7, 8, 9, 15, 16, 17, 100, 299, 300, 301, 1_000, 4_095, 4_096, 10_000, 16_000])
  func `a latency is read as at most an eighth longer than it was recorded`(milliseconds: Int64) throws {
    var latency = RecentLatency()
    latency.note(.milliseconds(milliseconds), Instant(nanoseconds: 0))
    let read = try #require(latency.allBut(oneIn: 1_000))
    #expect(read >= .milliseconds(milliseconds))
    #expect(read.count <= milliseconds * 1_125_000 + 1_200_000)
  }

  @Test
  func `a latency above or below all classes is counted in the nearest class`() {
    var latency = RecentLatency()
    latency.note(.seconds(3_600), Instant(nanoseconds: 0))
    #expect(latency.allBut(oneIn: 1_000) ?? .zero >= .seconds(17))
    latency.note(Nanoseconds(-5), Instant(nanoseconds: 0))
    #expect(latency.count == 2)
    #expect(latency.allBut(oneIn: 2) ?? .zero < .milliseconds(2))
  }
}

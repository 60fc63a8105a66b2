import Testing

@testable import Runtime

@Suite("UTC time", .timeLimit(.minutes(10)))
struct UTCTimeTests {
  @Test(
    arguments: [
      (0, "1970-01-01T00:00:00.000000Z"),
      (-1, "1969-12-31T23:59:59.999999Z"),
      (951_827_696_000_001, "2000-02-29T12:34:56.000001Z"),
      (1_709_251_199_999_999, "2024-02-29T23:59:59.999999Z"),
      (1_709_251_200_000_000, "2024-03-01T00:00:00.000000Z"),
      (4_102_444_799_000_000, "2099-12-31T23:59:59.000000Z"),
      (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
    ] as [(Int64, String)])
  func `a time is written in the format of RFC 3339`(microseconds: Int64, text: String) {
    #expect(UTCTime(microseconds: microseconds).iso8601 == text)
  }
}

// Tests of what Expo's receipts mean.

import Providers
import Queue
import Testing

@testable import Dispatching

@Suite("Receipt reading") struct ReceiptReadingTests {
  @Test("success and failure are stored, failures are reported, and missing receipts are requested again")
  func sorted() {
    let reading = ReceiptReading(
      ["a": .accepted(messageID: nil), "b": .tokenInvalid(reason: "DeviceNotRegistered", since: nil)],
      of: ["a", "b", "c"].map(DueReceipt.test))
    #expect(
      reading.results
        == [ReceiptResult(ticket: "a", reason: nil), ReceiptResult(ticket: "b", reason: "DeviceNotRegistered")])
    #expect(reading.missing == ["c"])
    #expect(reading.failures.map { String(decoding: $0.token, as: UTF8.self) } == ["token of b"])
    // A registration after the push was sent keeps the token alive.
    #expect(reading.failures.map(\.outcome) == [.tokenInvalid(reason: "DeviceNotRegistered", since: 1234)])
  }
}

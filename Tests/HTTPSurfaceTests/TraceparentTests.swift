// The header of W3C Trace Context: which values are read, and that invalid ones are ignored.

import Testing

@testable import HTTPSurface

@Suite struct TraceparentTests {
  static let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

  @Test func `version 00 is kept unchanged`() {
    #expect(Traceparent(header: Self.good)?.text == Self.good)
  }

  @Test(
    arguments: [
      ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "01"),
      ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-fe-what-comes", "00"),
      ("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-", "01"),
    ])
  func `a later version is read as far as it is known`(_ header: String, flags: String) {
    #expect(Traceparent(header: header)?.text == "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-\(flags)")
  }

  @Test(
    arguments: [
      "", "x", good + "-", good + "-00", good + " ", " " + good, String(good.dropLast()), good.uppercased(),
      "ff" + good.dropFirst(2), "0x" + good.dropFirst(2), good.replacing("-", with: "_"), good + ", " + good,
      "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
      "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
      "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
      "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
    ])
  func `a malformed header is ignored`(_ header: String) {
    #expect(Traceparent(header: header) == nil)
  }
}

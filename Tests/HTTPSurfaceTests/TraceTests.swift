// The trace of a call, from the HTTP header to the call's description.

import HTTPSurfaceTestSupport
import Testing

@Suite(.timeLimit(.minutes(10))) struct TraceTests {
  @Test func `the API keeps the header's trace, and ignores a header that is malformed`() async throws {
    try await APIHarness.with { api in
      let trace = "4bf92f3577b34da6a3ce929d0e0e4736"
      let headers = [
        "good": ["traceparent: 00-\(trace)-00f067aa0ba902b7-01"],
        "later": ["Traceparent: 42-\(trace)-00f067aa0ba902b7-01-more"],
        "malformed": ["traceparent: 00-\(trace.uppercased())-00f067aa0ba902b7-01"],
        "twice": Array(repeating: "traceparent: 00-\(trace)-00f067aa0ba902b7-01", count: 2), "none": [],
      ]
      for (call, lines) in headers {
        let answer = try await api.send("POST", "/v1/calls", APIHarness.call(call), headers: lines)
        #expect(answer.status == 202, "\(call): \(answer)")
        let told = try await api.send("GET", "/v1/calls/\(call)").json
        #expect(told["traceId"] != nil)
        #expect(told["traceId"] as? String == (["good", "later"].contains(call) ? trace : nil), "\(call)")
      }
    }
  }
}

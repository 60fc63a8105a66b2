// Tests of the limits on work that a server can cause, rule by rule, with the session in memory.

import Testing

@testable import Runtime

/// A literal field that is not indexed; name and value shorter than 127 bytes.
private func field(_ name: String, _ value: String) -> [UInt8] {
  [0, UInt8(name.utf8.count)] + Array(name.utf8) + [UInt8(value.utf8.count)] + Array(value.utf8)
}

private let (headers, data) = (HTTP2FrameType.headers, HTTP2FrameType.data)
private let enhanceYourCalm = frame(HTTP2FrameType.goAway, [0, 0, 0, 0, 0, 0, 0, 11])

/// A frame that is sent repeatedly.
private struct Flood: CustomTestStringConvertible, Sendable {
  let what: String
  let frame: [UInt8]

  init(_ what: String, _ frame: [UInt8]) { (self.what, self.frame) = (what, frame) }
  var testDescription: String { what }
}

@Suite(.timeLimit(.minutes(10))) struct HTTP2PeerBudgetTests {
  @Test(
    arguments: [
      ("PONG nobody asked for", frame(HTTP2FrameType.ping, flags: 1, [0, 0, 0, 0, 0, 0, 0, 0])),
      ("PING", frame(HTTP2FrameType.ping, [0, 0, 0, 0, 0, 0, 0, 0])),
      ("empty DATA", frame(data, stream: 1)),
      ("padding and nothing else", frame(data, flags: 8, stream: 1, [200] + [UInt8](repeating: 0, count: 200))),
      ("DATA of a stream that has ended", frame(data, stream: 3, [1])),
      ("103", frame(headers, flags: 4, stream: 1, [0x08, 3] + Array("103".utf8))),
      ("trailers of a stream that has ended", frame(headers, flags: 4, stream: 3, status200)),
      ("unknown frames", frame(0x42, [UInt8](repeating: 0, count: 16_384))),
      ("unknown frames without content", frame(0x42, stream: 1)),
      ("PRIORITY", frame(HTTP2FrameType.priority, stream: 1, [0, 0, 0, 0, 0])),
      ("RST_STREAM of a stream that has ended", frame(HTTP2FrameType.reset, stream: 3, [0, 0, 0, 0])),
      ("SETTINGS", frame(HTTP2FrameType.settings)),
      ("SETTINGS that acknowledge nothing", frame(HTTP2FrameType.settings, flags: 1)),
      ("windows that change", frame(HTTP2FrameType.settings, [0, 4, 0, 0, 0, 9])),
      ("WINDOW_UPDATE", frame(HTTP2FrameType.windowUpdate, [0, 0, 0, 1])),
      ("WINDOW_UPDATE of a stream", frame(HTTP2FrameType.windowUpdate, stream: 1, [0, 0, 0, 1])),
      ("GOAWAY", frame(HTTP2FrameType.goAway, [0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0])),
      (
        "GOAWAY with debug data",
        frame(
          HTTP2FrameType.goAway, [0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0] + [UInt8](repeating: 0x61, count: 4_000))
      ),
    ].map(Flood.init))
  fileprivate func `a flood of frames that need no answer ends the connection`(flood: Flood) throws {
    let (what, bytes) = (flood.what, flood.frame)
    let wire = try HTTP2SessionWire()
    try wire.request(tag: 1)
    try wire.request(tag: 2)
    try wire.hear(frame(headers, flags: 5, stream: 3, status200))
    if what.contains("DATA") || what.contains("padding") {
      try wire.hear(frame(headers, flags: 4, stream: 1, status200))
    }
    let count = wire.flood(bytes)
    #expect(count <= 4200, "\(what): \(count)")
    #expect(count >= 100, "\(what): \(count)")
    #expect(count * bytes.count <= 5 << 20, "\(what): \(count * bytes.count) bytes")
    #expect(wire.drainOutput().suffix(17) == enhanceYourCalm[...])
  }

  @Test func `a frame with a thousand settings uses up a thousand units of the budget`() throws {
    let wire = try HTTP2SessionWire()
    let entries = (0..<2730).flatMap { _ in [0, 4, 0, 0, 0, 9] as [UInt8] }
    #expect(wire.flood(frame(HTTP2FrameType.settings, entries)) <= 1)
  }

  @Test func `endless empty CONTINUATION frames end the connection`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request()
    try wire.hear(frame(headers, flags: 1, stream: 1, status200))
    #expect(wire.flood(frame(HTTP2FrameType.continuation, stream: 1)) <= 4096)
  }

  @Test func `ordinary answers use up none of the budget`() throws {
    let wire = try HTTP2SessionWire()
    let before = wire.credits
    for tag in 0..<10_000 {
      try wire.request(tag: tag)
      let stream = Int32(2 * tag + 1)
      try wire.hear(
        frame(headers, flags: 4, stream: stream, status200 + field("apns-id", "0123456789"))
          + frame(data, stream: stream, [UInt8](repeating: 0x7B, count: 2000)) + frame(data, flags: 1, stream: stream)
          + frame(HTTP2FrameType.windowUpdate, [0, 0, 0, 1])
          + frame(HTTP2FrameType.windowUpdate, stream: stream, [0, 0, 0, 1]))
      _ = wire.drainOutput()
      wire.events.removeAll()
    }
    #expect(wire.credits >= before - 10)
  }

  @Test func `late answers to requests that timed out together are no flood`() throws {
    let wire = try HTTP2SessionWire([(HTTP2Setting.streamsMax, 1000)])
    var requests: [Int] = []
    for tag in 0..<1000 { requests.append(try wire.request(tag: tag)) }
    for request in requests { wire.session.cancel(request) }
    for tag in 0..<1000 {
      let stream = Int32(2 * tag + 1)
      try wire.hear(
        frame(headers, flags: 4, stream: stream, status200) + frame(data, stream: stream, [1, 2, 3])
          + frame(data, flags: 1, stream: stream))
    }
  }

  @Test func `the budget is refilled over time`() {
    var budget = HTTP2PeerBudget(limits: .init())
    var now = Instant(nanoseconds: 0)
    budget.refill(now)
    var isPaid = budget.spend(4000)
    #expect(isPaid)
    // A PING or a similar frame every 20 ms is allowed for ever.
    for _ in 0..<10_000 {
      now = now + .milliseconds(20)
      budget.refill(now)
      isPaid = budget.spend(1) && isPaid
    }
    #expect(isPaid)
    now = now + .seconds(1_000_000)
    budget.refill(now)
    #expect(budget.credits == budget.limits.creditsMax)
    isPaid = budget.spend(4097)
    #expect(!isPaid)
  }

  // MARK: - Sizes

  @Test func `an endless body ends its stream, and the received status is reported`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request(tag: 1)
    try wire.request(tag: 2)
    _ = wire.drainOutput()
    try wire.hear(frame(headers, flags: 4, stream: 1, status200 + field("content-length", "99999999")))
    for _ in 0..<5 { try wire.hear(frame(data, stream: 1, [UInt8](repeating: 1, count: 16_384))) }
    #expect(wire.statuses == ["1 NO_ERROR 200"])
    guard case .ended(_, _, let response?)? = wire.events.last else { return #expect(Bool(false)) }
    #expect(response.isTruncated && response.body.count == 65_536)
    #expect(wire.drainOutput().suffix(13) == frame(HTTP2FrameType.reset, stream: 1, [0, 0, 0, 8])[...])
    // It is not read for ever.
    #expect(wire.flood(frame(data, stream: 1, [UInt8](repeating: 1, count: 16_384))) < 300)
  }

  @Test func `endless bodies on all streams end the connection`() throws {
    let wire = try HTTP2SessionWire([(HTTP2Setting.streamsMax, 1000)])
    for tag in 0..<1000 { try wire.request(tag: tag) }
    var bytes = 0
    #expect(throws: HTTP2Error.self) {
      for tag in 0..<1000 {
        try wire.hear(frame(headers, flags: 4, stream: Int32(2 * tag + 1), status200))
        for _ in 0..<4 {
          try wire.hear(frame(data, stream: Int32(2 * tag + 1), [UInt8](repeating: 1, count: 16_384)))
          bytes += 16_384
        }
      }
    }
    #expect(bytes < 10 << 20)
  }

  @Test func `a header list with too many fields ends its stream`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request(tag: 1)
    try wire.request(tag: 2)
    let fields = { (count: Int) in (0..<count).flatMap { _ in field("a", "") } }
    try wire.hear(frame(headers, flags: 5, stream: 1, status200 + fields(128)))
    try wire.hear(frame(headers, flags: 5, stream: 3, status200 + fields(127)))
    #expect(wire.statuses == ["1 ENHANCE_YOUR_CALM", "2 NO_ERROR 200"])
  }

  @Test func `a header list with too many bytes ends its stream, and later ones are still decoded`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request(tag: 1)
    try wire.request(tag: 2)
    // The block puts a field into the table that the next one names.
    let indexed: [UInt8] = [0x40, 1, 0x61, 1, 0x62]
    let long = (0..<100).flatMap { _ in field("x-name", String(repeating: "v", count: 126)) }
    try wire.hear(frame(headers, flags: 5, stream: 1, status200 + long + indexed))
    try wire.hear(frame(headers, flags: 5, stream: 3, [0x88, 0xBE]))
    #expect(wire.statuses == ["1 ENHANCE_YOUR_CALM", "2 NO_ERROR 200"])
  }

  @Test func `a header list that grows too much by decoding ends the connection`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request()
    // Each byte is a field of 4,000 bytes.
    var entry: [UInt8] = [0x40, 1, 0x61]
    entry.appendHPACK(4000, prefixBits: 7)
    entry += [UInt8](repeating: 0x62, count: 4000)
    let bomb = status200 + entry + [UInt8](repeating: 0xBE, count: 12_000)
    #expect(throws: HTTP2Error.self) { try wire.hear(frame(headers, flags: 5, stream: 1, bomb)) }
    #expect(wire.drainOutput().suffix(17) == enhanceYourCalm[...])
  }

  @Test func `the limit of a header list is sent to the server`() {
    var session = HTTP2ClientSession()
    var bytes: [UInt8] = []
    session.drainOutput(into: &bytes)
    #expect(bytes[24...].prefix(27).suffix(6) == [0, 6, 0, 0, 0x40, 0])
  }

  @Test func `only the beginning of debug data is kept`() throws {
    let wire = try HTTP2SessionWire()
    try wire.hear(
      frame(HTTP2FrameType.goAway, [0, 0, 0, 0, 0, 0, 0, 0] + [UInt8](repeating: 0x61, count: 10_000)))
    guard case .goAway(_, _, let debugData)? = wire.events.last else { return #expect(Bool(false)) }
    #expect(debugData.count == 512)
  }

  @Test(arguments: ["2 0", "20", "2000", "-20", "2x0", "xyz", "", "099", "000", " 200", "\u{0B}00"])
  func `a status must have three digits`(status: String) throws {
    let wire = try HTTP2SessionWire()
    try wire.request()
    try wire.hear(frame(headers, flags: 5, stream: 1, [0x08, UInt8(status.utf8.count)] + Array(status.utf8)))
    #expect(wire.statuses == ["0 PROTOCOL_ERROR"])
  }

  // MARK: - Bodies that were not sent whole

  @Test(arguments: [HTTP2ErrorCode.cancel, .internalError, .protocolError, .refusedStream])
  func `a request that waits for flow control is refused for every error code`(code: HTTP2ErrorCode) throws {
    let wire = try HTTP2SessionWire([(HTTP2Setting.streamWindow, 0)])
    try wire.request(body: 10, tag: 1)
    try wire.request(tag: 2)
    let payload: [UInt8] = [0, 0, 0, UInt8(code.rawValue)]
    try wire.hear(frame(HTTP2FrameType.reset, stream: 1, payload) + frame(HTTP2FrameType.reset, stream: 3, payload))
    #expect(wire.statuses == ["1 REFUSED_STREAM", "2 \(code)"])
  }

  @Test func `a request is complete when its last byte is sent`() throws {
    let wire = try HTTP2SessionWire([(HTTP2Setting.streamWindow, 4)])
    let head = try wire.request(tag: 1)
    let headEnd = wire.departures[0].outputBefore + UInt64(wire.drainOutput().count)
    #expect(wire.isWhole(head, within: headEnd) == true)
    #expect(wire.isWhole(head, within: headEnd - 1) == false)
    let body = try wire.request(body: 10, tag: 2)
    let partEnd = headEnd + UInt64(wire.drainOutput().count)
    #expect(wire.isWhole(body, within: partEnd) == false)
    try wire.hear(frame(HTTP2FrameType.windowUpdate, stream: 3, [0, 0, 0, 6]))
    let end = partEnd + UInt64(wire.drainOutput().count)
    #expect(wire.isWhole(body, within: end) == true)
    #expect(wire.isWhole(body, within: end - 1) == false)
  }
}

// Tests of the client's session with single frames: what a server may send, and what it must not.

import Testing

@testable import Runtime

private let (headers, data) = (HTTP2FrameType.headers, HTTP2FrameType.data)

@Suite(.timeLimit(.minutes(10))) struct HTTP2FrameTests {
  @Test func `a frame header is read as it was written`() {
    for stream: Int32 in [0, 1, 255, 256, 0x0102_0304, .max] {
      let bytes = frame(9, flags: 0xA5, stream: stream, [UInt8](repeating: 0, count: 0x0123))
      let head = bytes.withUnsafeBytes { HTTP2FrameHead($0) }
      #expect(head.type == 9 && head.flags == 0xA5 && head.stream == stream && head.length == 0x0123)
    }
  }

  @Test func `the reserved bit of a stream id is ignored`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request()
    var answer = frame(headers, flags: 5, stream: 1, status200)
    answer[5] |= 0x80
    try wire.hear(answer)
    #expect(wire.ends == ["0 NO_ERROR 200 "])
  }

  @Test func `frames can arrive in pieces of any size`() throws {
    let answer =
      frame(HTTP2FrameType.settings, flags: 1) + frame(headers, flags: 4, stream: 1, status200)
      + frame(data, stream: 1, Array("hel".utf8)) + frame(0x42, stream: 1, [1, 2, 3])
      + frame(data, flags: 1, stream: 1, Array("lo".utf8)) + frame(headers, flags: 5, stream: 3, status200)
    for size in 1...(answer.count) {
      let wire = try HTTP2SessionWire()
      try wire.request(tag: 1)
      try wire.request(tag: 2)
      for start in stride(from: 0, to: answer.count, by: size) {
        try wire.hear(Array(answer[start..<min(start + size, answer.count)]))
      }
      #expect(wire.ends == ["1 NO_ERROR 200 hello", "2 NO_ERROR 200 "], "pieces of \(size)")
    }
  }

  @Test func `padding and priority are no part of the message`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request()
    let padded: [UInt8] = [3] + [0, 0, 0, 0, 16] + status200 + [0, 0, 0]
    try wire.hear(frame(headers, flags: 4 | 8 | 0x20, stream: 1, padded))
    try wire.hear(frame(data, flags: 1 | 8, stream: 1, [2] + Array("ok".utf8) + [0, 0]))
    #expect(wire.ends == ["0 NO_ERROR 200 ok"])
  }

  @Test func `a header block can continue in CONTINUATION frames`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request()
    let block = [0x88, 0x00, 7] + Array("apns-id".utf8) + [4] + Array("8a04".utf8)
    try wire.hear(frame(headers, flags: 1, stream: 1, Array(block[..<3])))
    try wire.hear(frame(HTTP2FrameType.continuation, stream: 1, Array(block[3..<9])))
    #expect(wire.ends.isEmpty)
    try wire.hear(frame(HTTP2FrameType.continuation, flags: 4, stream: 1, Array(block[9...])))
    #expect(wire.ends == ["0 NO_ERROR 200 "])
  }

  @Test func `a long head is sent in several frames`() throws {
    let wire = try HTTP2SessionWire()
    let long = String(repeating: "x", count: 40_000)
    try wire.request(body: 1, [("apns-id", long)])
    let frames = wire.takeFrames().map { $0.split(separator: " ").map { Int($0)! } }
    #expect(frames.map { $0[0] } == [1, 9, 9, 0])
    #expect(frames.map { $0[1] } == [0, 0, 4, 1])
    #expect(frames.map { $0[3] }.dropLast().reduce(0, +) > 40_000)
    // And a server of nghttp2's makes sense of it.
    let server = HTTP2ServerSession()
    var other = HTTP2ClientSession()
    var head = HTTP2RequestHead([":method": "POST", ":scheme": "https", ":authority": "localhost"])
    head.add(.path, "/")
    head.add(HTTP2FieldName("apns-id"), long)
    _ = try other.request(head, body: [1], tag: 0)
    var bytes: [UInt8] = []
    other.drainOutput(into: &bytes)
    try bytes.withUnsafeBytes { try server.receive($0) }
    var requests: [HTTP2Request] = []
    server.drainRequests(into: &requests)
    #expect(requests.first?.message.headers.text("apns-id") == long)
  }

  @Test func `trailers end an answer and do not change its head`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request()
    try wire.hear(frame(headers, flags: 4, stream: 1, status200))
    try wire.hear(frame(data, stream: 1, Array("ok".utf8)))
    try wire.hear(frame(headers, flags: 5, stream: 1, [0x00, 1, 0x61, 1, 0x62]))
    #expect(wire.ends == ["0 NO_ERROR 200 ok"])
  }

  @Test func `headers for a cancelled request are decoded nevertheless`() throws {
    let wire = try HTTP2SessionWire()
    let first = try wire.request(tag: 1)
    try wire.request(tag: 2)
    wire.session.cancel(first)
    // The first block puts a field into the table that the second names.
    try wire.hear(frame(headers, flags: 5, stream: 1, [0x88, 0x40, 1, 0x61, 1, 0x62]))
    try wire.hear(frame(headers, flags: 5, stream: 3, [0x88, 0xBE]))
    #expect(wire.ends == ["1 CANCEL", "2 NO_ERROR 200 "])
  }

  // MARK: - Flow control

  @Test func `a body waits for the windows of its connection and of its stream`() throws {
    let wire = try HTTP2SessionWire([(HTTP2Setting.streamWindow, 100)])
    try wire.request(body: 250)
    #expect(wire.takeFrames().dropFirst() == ["0 0 1 100"])
    try wire.hear(frame(HTTP2FrameType.windowUpdate, stream: 1, number(60)))
    #expect(wire.takeFrames() == ["0 0 1 60"])
    // All streams get 40 more.
    try wire.hear(frame(HTTP2FrameType.settings, [0, 4, 0, 0, 0, 140]))
    #expect(wire.takeFrames() == ["0 0 1 40", "4 1 0 0"])
    try wire.hear(frame(HTTP2FrameType.windowUpdate, stream: 1, number(1000)))
    #expect(wire.takeFrames() == ["0 1 1 50"])
    try wire.request(body: 10)
    #expect(wire.takeFrames().last == "0 1 3 10")
  }

  @Test func `SETTINGS with a smaller window can make a stream's window negative`() throws {
    let wire = try HTTP2SessionWire([(HTTP2Setting.streamWindow, 100)])
    try wire.request(body: 150)
    _ = wire.takeFrames()
    try wire.hear(frame(HTTP2FrameType.settings, [0, 4, 0, 0, 0, 20]))
    try wire.hear(frame(HTTP2FrameType.windowUpdate, stream: 1, number(80)))
    #expect(wire.takeFrames() == ["4 1 0 0"])
    try wire.hear(frame(HTTP2FrameType.windowUpdate, stream: 1, number(10)))
    #expect(wire.takeFrames() == ["0 0 1 10"])
  }

  @Test func `bodies use the connection's window in their order`() throws {
    let wire = try HTTP2SessionWire([(HTTP2Setting.streamWindow, 1 << 20)])
    for tag in 0..<3 { try wire.request(body: 30_000, tag: tag) }
    let sent = wire.takeFrames().filter { $0.hasPrefix("0 ") }
    #expect(sent == ["0 0 1 16384", "0 1 1 13616", "0 0 3 16384", "0 1 3 13616", "0 0 5 5535"])
    try wire.hear(frame(HTTP2FrameType.windowUpdate, number(1 << 20)))
    #expect(wire.takeFrames() == ["0 0 5 16384", "0 1 5 8081"])
  }

  @Test func `bodies of cancelled requests use no window`() throws {
    let wire = try HTTP2SessionWire([(HTTP2Setting.streamWindow, 1 << 20)])
    var requests: [Int] = []
    for tag in 0..<4 { requests.append(try wire.request(body: 60_000, tag: tag)) }
    _ = wire.takeFrames()
    wire.session.cancel(requests[1])
    wire.session.cancel(requests[2])
    #expect(wire.takeFrames() == ["3 0 3 4", "3 0 5 4"])
    try wire.hear(frame(HTTP2FrameType.windowUpdate, number(1 << 20)))
    #expect(wire.takeFrames().map { $0.split(separator: " ")[2] } == ["7", "7", "7", "7"])
  }

  @Test func `received bytes are returned to the peer's window`() throws {
    var client = HTTP2SessionSettings()
    client.streamWindowBytes = 1000
    client.connectionWindowBytes = 70_000
    client.bodyBytesMax = 100_000
    let wire = try HTTP2SessionWire(client: client)
    try wire.request()
    try wire.hear(frame(headers, flags: 4, stream: 1, status200))
    try wire.hear(frame(data, stream: 1, [UInt8](repeating: 1, count: 400)))
    #expect(wire.takeFrames() == ["1 5 1 \(wire.headLength)"])
    try wire.hear(frame(data, stream: 1, [UInt8](repeating: 1, count: 200)))
    #expect(wire.takeFrames() == ["8 0 1 4"])
    for _ in 0..<60 { try wire.hear(frame(data, stream: 1, [UInt8](repeating: 1, count: 600))) }
    #expect(wire.takeFrames().contains("8 0 0 4"))
    try wire.hear(frame(data, flags: 1, stream: 1))
    guard case .ended(_, _, let response?)? = wire.events.last else { return #expect(Bool(false)) }
    #expect(response.body.count == 36_600 && !response.isTruncated)
  }

  @Test func `an answer that arrives before its request is completely sent ends the request`() throws {
    let wire = try HTTP2SessionWire([(HTTP2Setting.streamWindow, 10)])
    try wire.request(body: 50)
    _ = wire.takeFrames()
    try wire.hear(frame(headers, flags: 5, stream: 1, [0x8D]))
    #expect(wire.ends == ["0 NO_ERROR 404 "])
    #expect(wire.takeFrames() == ["3 0 1 4"])
    try wire.hear(frame(HTTP2FrameType.windowUpdate, stream: 1, number(1000)))
    #expect(wire.takeFrames().isEmpty)
  }

  // MARK: - Streams

  @Test func `a request that waits for a stream can be withdrawn and is not sent`() throws {
    let wire = try HTTP2SessionWire([(HTTP2Setting.streamsMax, 1)])
    try wire.request(tag: 1)
    let waiting = try wire.request(tag: 2)
    try wire.request(tag: 3)
    #expect(wire.takeFrames().count == 1)
    wire.session.cancel(waiting)
    #expect(wire.takeFrames().isEmpty)
    try wire.hear(frame(headers, flags: 5, stream: 1, status200))
    #expect(wire.takeFrames().map { $0.split(separator: " ")[2] } == ["3"])
    try wire.hear(frame(headers, flags: 5, stream: 3, status200))
    #expect(wire.ends == ["2 CANCEL", "1 NO_ERROR 200 ", "3 NO_ERROR 200 "])
    #expect(wire.departures.map(\.tag) == [1, 3])
  }

  @Test func `requests wait while too many bytes are unsent`() throws {
    let wire = try HTTP2SessionWire()
    wire.session.outputLimit = 1000
    for tag in 0..<5 { try wire.request(body: 600, tag: tag) }
    #expect(wire.departures.map(\.tag) == [0, 1])
    #expect(!wire.hasWaiting)
    _ = wire.drainOutput()
    #expect(wire.departures.map(\.tag) == [0, 1])
    #expect(wire.hasWaiting)
    _ = wire.drainOutput()
    #expect(wire.departures.map(\.tag) == [0, 1, 2, 3])
    wire.session.outputLimit = 0
    #expect(!wire.hasWaiting)
    #expect(wire.takeFrames().allSatisfy { !$0.hasPrefix("1 ") })
    wire.session.outputLimit = 1
    #expect(wire.takeFrames().contains { $0.hasPrefix("1 ") })
    #expect(wire.departures.map(\.tag) == [0, 1, 2, 3, 4])
  }

  @Test func `the position of each head in the output is reported`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request(body: 10, tag: 1)
    let first = wire.drainOutput().count
    try wire.request(body: 10, tag: 2)
    try wire.request(body: 10, tag: 3)
    let places = wire.departures.map(\.outputBefore)
    #expect(places[1] - places[0] == UInt64(first))
    #expect(places[2] > places[1])
  }

  @Test func `hundreds of streams after an open one are found under their ids`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request(tag: 0)
    for tag in 1...300 {
      try wire.request(tag: tag)
      try wire.hear(frame(headers, flags: 5, stream: Int32(2 * tag + 1), status200))
    }
    #expect(wire.events.count == 300)
    try wire.hear(frame(headers, flags: 5, stream: 1, status200))
    #expect(wire.ends.last == "0 NO_ERROR 200 ")
    try wire.request(tag: 7)
    try wire.hear(frame(headers, flags: 5, stream: 603, status200))
    #expect(wire.ends.last == "7 NO_ERROR 200 ")
  }

  @Test func `a second GOAWAY can refuse more streams`() throws {
    let wire = try HTTP2SessionWire()
    for tag in 0..<3 { try wire.request(tag: tag) }
    let goAway = { (last: UInt32) in frame(HTTP2FrameType.goAway, number(last) + number(0)) }
    try wire.hear(goAway(UInt32(Int32.max)))
    #expect(wire.ends.isEmpty)
    #expect(wire.isGoingAway)
    try wire.hear(goAway(1))
    #expect(wire.ends.sorted() == ["1 REFUSED_STREAM", "2 REFUSED_STREAM"])
    try wire.request(tag: 9)
    var events: [HTTP2Event] = []
    wire.session.drainEvents(into: &events)
    guard case .ended(9, .refusedStream, nil)? = events.first else { return #expect(Bool(false)) }
  }

  @Test func `PING and SETTINGS are acknowledged`() throws {
    let wire = try HTTP2SessionWire()
    try wire.hear(frame(HTTP2FrameType.ping, [1, 2, 3, 4, 5, 6, 7, 8]))
    #expect(wire.drainOutput() == frame(HTTP2FrameType.ping, flags: 1, [1, 2, 3, 4, 5, 6, 7, 8]))
    try wire.hear(frame(HTTP2FrameType.settings, [0, 3, 0, 0, 0, 5]))
    #expect(wire.drainOutput() == frame(HTTP2FrameType.settings, flags: 1))
    #expect(wire.streamsMax == 5)
  }

  // MARK: - Wrong about a stream

  @Test(arguments: [
    ("no status", [frame(headers, flags: 5, stream: 1, [0x00, 1, 0x61, 1, 0x62])]),
    ("an interim answer that is the last", [frame(headers, flags: 5, stream: 1, [0x08, 3] + Array("100".utf8))]),
    ("data before the head", [frame(data, flags: 1, stream: 1, [1])]),
    ("a second head", [frame(headers, flags: 4, stream: 1, [0x88]), frame(headers, flags: 4, stream: 1, [0x88])]),
    (
      "a body shorter than promised",
      [
        frame(headers, flags: 4, stream: 1, [0x88, 0x0F, 13, 1] + Array("3".utf8)),
        frame(data, flags: 1, stream: 1, [1, 2]),
      ]
    ),
    ("no body where one is promised", [frame(headers, flags: 5, stream: 1, [0x88, 0x0F, 13, 1] + Array("3".utf8))]),
    ("a window of nothing", [frame(HTTP2FrameType.windowUpdate, stream: 1, number(0))]),
  ])
  func `a malformed answer ends its stream, and the other streams continue`(what: String, frames: [[UInt8]]) throws {
    let wire = try HTTP2SessionWire()
    try wire.request(tag: 1)
    try wire.request(tag: 2)
    _ = wire.takeFrames()
    for frame in frames { try wire.hear(frame) }
    #expect(wire.ends == ["1 PROTOCOL_ERROR"])
    #expect(wire.takeFrames() == ["3 0 1 4"])
    try wire.hear(frame(data, flags: 1, stream: 1, [1]))  // too late, and harmless
    try wire.hear(frame(headers, flags: 5, stream: 3, status200))
    #expect(wire.ends.last == "2 NO_ERROR 200 ")
  }

  @Test func `a WINDOW_UPDATE beyond the maximum ends the stream`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request()
    try wire.hear(frame(HTTP2FrameType.windowUpdate, stream: 1, number(UInt32(Int32.max))))
    #expect(wire.ends == ["0 FLOW_CONTROL_ERROR"])
  }

  // MARK: - Wrong about the connection

  @Test(
    arguments: [
      ("too long a frame", [0, 0x40, 1, 0, 0, 0, 0, 0, 1], 6),
      ("a stream that never was", frame(headers, flags: 5, stream: 9, [0x88]), 1),
      ("a stream of its own", frame(headers, flags: 5, stream: 2, [0x88]), 1),
      ("data of the whole connection", frame(0, flags: 1, stream: 0, [1]), 1),
      ("no header block", frame(headers, flags: 5, stream: 1, [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]), 9),
      ("half a header block", frame(headers, flags: 5, stream: 1, [0x40, 5, 0x61]), 9),
      ("a block that is interrupted", frame(headers, stream: 1, [0x88]) + frame(6, [1, 2, 3, 4, 5, 6, 7, 8]), 1),
      ("a block that goes on elsewhere", frame(headers, stream: 1, [0x88]) + frame(9, flags: 4, stream: 3, []), 1),
      ("the end of a block without its beginning", frame(9, flags: 4, stream: 1, [0x88]), 1),
      ("more padding than frame", frame(headers, flags: 5 | 8, stream: 1, [9, 0x88]), 1),
      ("padding without its length", frame(data, flags: 8, stream: 1, []), 1),
      ("half a priority", frame(headers, flags: 5 | 0x20, stream: 1, [0, 0]), 6),
      ("the beginning of a block of a stream that never was", frame(headers, stream: 9, [0x88]), 1),
      ("PRIORITY of no stream", frame(2, [0, 0, 0, 0, 0]), 1),
      ("PRIORITY of four bytes", frame(2, stream: 1, [0, 0, 0, 0]), 6),
      ("PUSH_PROMISE", frame(5, flags: 4, stream: 1, [0, 0, 0, 2, 0x88]), 1),
      ("RST_STREAM of three bytes", frame(3, stream: 1, [0, 0, 0]), 6),
      ("SETTINGS of a stream", frame(4, stream: 1, []), 1),
      ("SETTINGS of five bytes", frame(4, [0, 3, 0, 0, 0]), 6),
      ("an acknowledgement that sets", frame(4, flags: 1, [0, 3, 0, 0, 0, 1]), 6),
      ("too large a window for streams", frame(4, [0, 4, 0x80, 0, 0, 0]), 3),
      ("too small a frame size", frame(4, [0, 5, 0, 0, 0, 1]), 1),
      ("a server that wants pushes", frame(4, [0, 2, 0, 0, 0, 1]), 1),
      ("PING of seven bytes", frame(6, [1, 2, 3, 4, 5, 6, 7]), 6),
      ("PING of a stream", frame(6, stream: 1, [1, 2, 3, 4, 5, 6, 7, 8]), 1),
      ("GOAWAY of seven bytes", frame(7, [0, 0, 0, 1, 0, 0, 0]), 6),
      ("WINDOW_UPDATE of nothing", frame(8, [0, 0, 0, 0]), 1),
      ("WINDOW_UPDATE beyond the largest window", frame(8, [0x7F, 0xFF, 0xFF, 0xFF]), 3),
      ("WINDOW_UPDATE of three bytes", frame(8, [0, 0, 1]), 6),
    ] as [(String, [UInt8], UInt8)])
  func `a protocol violation ends the connection with its error code`(what: String, bytes: [UInt8], code: UInt8) throws
  {
    let wire = try HTTP2SessionWire()
    try wire.request()
    _ = wire.drainOutput()
    #expect(throws: HTTP2Error.self) { try wire.hear(bytes) }
    let output = wire.drainOutput()
    #expect(output.suffix(17) == frame(HTTP2FrameType.goAway, [0, 0, 0, 0, 0, 0, 0, code])[...])
    // Nothing more is read.
    try wire.hear(frame(headers, flags: 5, stream: 1, status200))
    #expect(wire.ends.isEmpty)
  }

  @Test func `the first frame must be SETTINGS`() throws {
    let wire = try HTTP2SessionWire(greets: false)
    #expect(throws: HTTP2Error.self) { try wire.hear(frame(HTTP2FrameType.ping, [1, 2, 3, 4, 5, 6, 7, 8])) }
    let other = try HTTP2SessionWire(greets: false)
    #expect(throws: HTTP2Error.self) { try other.hear(frame(HTTP2FrameType.settings, flags: 1)) }
  }

  @Test func `a header block without an end ends the connection`() throws {
    let wire = try HTTP2SessionWire()
    try wire.request()
    try wire.hear(frame(headers, flags: 1, stream: 1, [0x88]))
    let more = frame(HTTP2FrameType.continuation, stream: 1, [UInt8](repeating: 0x88, count: 16_000))
    #expect(throws: HTTP2Error.self) { for _ in 0..<10 { try wire.hear(more) } }
  }

  @Test(arguments: [UInt8(0), 1]) func `more data than the window allows ends the stream, also if it is the last`(
    flags: UInt8
  ) throws {
    var client = HTTP2SessionSettings()
    client.streamWindowBytes = 1000
    let wire = try HTTP2SessionWire(client: client)
    try wire.request()
    try wire.hear(frame(headers, flags: 4, stream: 1, status200))
    try wire.hear(frame(data, flags: flags, stream: 1, [UInt8](repeating: 1, count: 1001)))
    #expect(wire.ends == ["0 FLOW_CONTROL_ERROR"])
  }

  @Test func `a peer that only sends and never reads is disconnected`() throws {
    let wire = try HTTP2SessionWire()
    let pings = (0..<1000).flatMap { _ in frame(HTTP2FrameType.ping, [0, 0, 0, 0, 0, 0, 0, 0]) }
    #expect(throws: HTTP2Error.self) { for _ in 0..<20 { try wire.hear(pings) } }
  }

  @Test(
    arguments: [
      ("two statuses", [0x88, 0x88]),
      ("a status behind another field", [0x10, 1, 0x61, 1, 0x62, 0x88]), ("a request's field", [0x88, 0x83]),
      ("a pseudo-header field that is none", [0x88, 0x10, 2, 0x3A, 0x61, 0]), ("an upgrade", [8, 3, 0x31, 0x30, 0x31]),
    ] as [(String, [UInt8])])
  func `an answer with a contradictory head is invalid`(what: String, block: [UInt8]) throws {
    let wire = try HTTP2SessionWire()
    try wire.request()
    try wire.request(tag: 1)
    try wire.hear(frame(headers, flags: 4, stream: 1, block))
    #expect(wire.ends.first == "0 PROTOCOL_ERROR")
  }
}

// Tests of the HTTP/2 session: client and server in memory.

import Runtime
import Testing

/// A client and a server whose bytes are exchanged in memory.
private final class SessionPair {
  var client: HTTP2ClientSession
  let server: HTTP2ServerSession
  var clientEvents: [HTTP2Event] = []
  var serverRequests: [HTTP2Request] = []

  init(client: HTTP2SessionSettings = HTTP2SessionSettings(), server: HTTP2SessionSettings = HTTP2SessionSettings()) {
    self.client = HTTP2ClientSession(settings: client)
    self.server = HTTP2ServerSession(settings: server)
  }

  var streamsMax: Int { client.peerStreamsMax }
  var isGoingAway: Bool { client.isGoingAway }

  /// Exchanges bytes until neither side has any.
  func settle() throws {
    while try carryToServer() + carryToClient() > 0 {}
  }

  @discardableResult
  func carryToServer() throws -> Int {
    var bytes: [UInt8] = []
    client.openWaiting()
    client.drainOutput(into: &bytes)
    try bytes.withUnsafeBytes { try server.receive($0) }
    var batch: [HTTP2Request] = []
    server.drainRequests(into: &batch)
    serverRequests += batch
    return bytes.count
  }

  @discardableResult
  func carryToClient() throws -> Int {
    var bytes: [UInt8] = []
    try server.send(into: &bytes, upTo: .max)
    try hear(bytes)
    return bytes.count
  }

  /// The client receives these bytes.
  func hear(_ bytes: [UInt8]) throws {
    try bytes.withUnsafeBytes { try client.receive($0) }
    var batch: [HTTP2Event] = []
    client.drainEvents(into: &batch)
    clientEvents += batch
  }

  /// The requests the server got since the last call.
  func drainRequests() -> [HTTP2Request] {
    defer { serverRequests = [] }
    return serverRequests
  }

  struct Closed {
    var tag: Int
    var code: HTTP2ErrorCode
    var response: HTTP2Message?
  }

  /// The streams that ended for the client since the last call.
  func takeClosed() -> [Closed] {
    defer { clientEvents = [] }
    return clientEvents.compactMap {
      if case .ended(let tag, let code, let response) = $0 {
        Closed(tag: tag, code: code, response: response)
      } else {
        nil
      }
    }
  }
}

private let shared: HTTP2SharedFields = [":method": "POST", ":scheme": "https", ":authority": "localhost"]

private func head(_ path: String = "/3/device/00") -> HTTP2RequestHead {
  var head = HTTP2RequestHead(shared)
  head.add(.path, path)
  return head
}

private func answer(_ status: String = "200") -> HTTP2HeaderBlock {
  var headers = HTTP2HeaderBlock()
  headers.add(":status", status)
  headers.add("apns-id", "8a04")
  return headers
}

@Suite(.timeLimit(.minutes(10))) struct HTTP2SessionTests {
  @Test func `a request arrives whole, and its answer is reported under its tag`() throws {
    let pair = SessionPair()
    try pair.settle()
    try pair.client.request(head("/a"), body: Array("hello".utf8), tag: 7)
    try pair.settle()
    let request = try #require(pair.drainRequests().first)
    #expect(request.message.headers.text(":path") == "/a")
    #expect(request.message.headers.count(of: ":authority") == 1)
    #expect(request.message.body == Array("hello".utf8))
    pair.server.respond(to: request.stream, answer("410"), body: Array("{}".utf8))
    try pair.settle()
    let closed = pair.takeClosed()
    #expect(closed.map(\.tag) == [7])
    #expect(closed[0].code == .noError)
    #expect(closed[0].response?.status == 410)
    #expect(closed[0].response?.headers.text("apns-id") == "8a04")
    #expect(closed[0].response?.body == Array("{}".utf8))
  }

  @Test func `memory that is reused contains nothing of an earlier answer, and copies stay unchanged`() throws {
    let pair = SessionPair()
    try pair.settle()
    var kept: [HTTP2Message] = []
    for (round, status) in ["410", "200", "503"].enumerated() {
      try pair.client.request(head("/\(round)"), body: [UInt8](repeating: 1, count: 10 * round), tag: round)
      try pair.settle()
      let request = try #require(pair.drainRequests().first)
      #expect(request.message.headers.count == 4)
      #expect(request.message.body.count == 10 * round)
      // Every other answer has a body and one field more.
      var fields = answer(status)
      if round == 0 { fields.add("retry-after", "7") }
      pair.server.respond(to: request.stream, fields, body: round == 0 ? Array("{}".utf8) : [])
      try pair.settle()
      let response = try #require(pair.takeClosed().first?.response)
      kept.append(response)
      pair.client.recycle(response)
    }
    #expect(kept.map(\.status) == [410, 200, 503])
    #expect(kept.map(\.headers.count) == [3, 2, 2])
    #expect(kept.map(\.body.count) == [2, 0, 0])
  }

  @Test func `a body larger than the window is sent in parts`() throws {
    var small = HTTP2SessionSettings()
    small.streamWindowBytes = 1000
    small.bodyBytesMax = 1 << 20
    let pair = SessionPair(server: small)
    try pair.settle()
    let body = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
    try pair.client.request(head(), body: body, tag: 0)
    try pair.settle()
    #expect(pair.drainRequests().first?.message.body == body)
  }

  @Test func `a body over the limit is truncated, and marked as truncated`() throws {
    var settings = HTTP2SessionSettings()
    settings.bodyBytesMax = 10
    let pair = SessionPair(server: settings)
    try pair.settle()
    try pair.client.request(head(), body: [UInt8](repeating: 1, count: 100), tag: 0)
    try pair.settle()
    let message = try #require(pair.drainRequests().first?.message)
    #expect(message.body.count == 10)
    #expect(message.isTruncated)
  }

  @Test func `only one stream is opened before the server's SETTINGS`() throws {
    let pair = SessionPair()
    for tag in 0..<3 { try pair.client.request(head(), body: [], tag: tag) }
    try pair.carryToServer()
    let departed = pair.client.departures.map(\.tag)
    #expect(departed == [0])
    #expect(pair.drainRequests().count == 1)
  }

  @Test func `the server's stream limit is known and can fall`() throws {
    var settings = HTTP2SessionSettings()
    settings.streamsMax = 2
    let pair = SessionPair(server: settings)
    #expect(pair.streamsMax == 1)
    try pair.settle()
    #expect(pair.streamsMax == 2)
    for tag in 0..<3 { try pair.client.request(head(), body: [], tag: tag) }
    try pair.settle()
    #expect(pair.drainRequests().count == 2)
    pair.server.limitStreams(to: 1)
    try pair.settle()
    #expect(pair.streamsMax == 1)
  }

  @Test func `GOAWAY refuses streams above the last one, and the others continue`() throws {
    let pair = SessionPair(server: HTTP2SessionSettings())
    try pair.settle()
    for tag in 0..<4 { try pair.client.request(head(), body: [], tag: tag) }
    try pair.settle()
    let requests = pair.drainRequests()
    pair.server.goAway(lastStream: requests[1].stream, debugData: Array(#"{"reason":"Shutdown"}"#.utf8))
    try pair.settle()
    let reason = pair.clientEvents.compactMap {
      if case .goAway(let last, _, let data) = $0 { "\(last) \(String(decoding: data, as: UTF8.self))" } else { nil }
    }
    #expect(reason == [#"3 {"reason":"Shutdown"}"#])
    let refused = pair.takeClosed()
    #expect(refused.map(\.tag).sorted() == [2, 3])
    #expect(refused.allSatisfy { $0.code == .refusedStream && $0.response == nil })
    pair.server.respond(to: requests[0].stream, answer())
    pair.server.respond(to: requests[1].stream, answer())
    try pair.settle()
    #expect(pair.takeClosed().map { $0.response?.status } == [200, 200])
    #expect(pair.isGoingAway)
    try pair.client.request(head(), body: [], tag: 9)
    try pair.settle()
    #expect(pair.takeClosed().map(\.code) == [.refusedStream])
  }

  @Test func `requests that wait for a stream are refused by GOAWAY`() throws {
    let pair = SessionPair()
    for tag in 0..<3 { try pair.client.request(head(), body: [], tag: tag) }
    try pair.carryToServer()
    pair.server.goAway(lastStream: 1)
    try pair.settle()
    let closed = pair.takeClosed()
    #expect(closed.map(\.tag).sorted() == [1, 2])
    #expect(closed.allSatisfy { $0.code == .refusedStream })
  }

  @Test func `a reset stream has no response, even if a part of it was received`() throws {
    let pair = SessionPair()
    try pair.settle()
    try pair.client.request(head(), body: [1], tag: 3)
    try pair.settle()
    let stream = try #require(pair.drainRequests().first?.stream)
    pair.server.respond(to: stream, answer(), body: Array("{\"rea".utf8), ends: false)
    try pair.settle()
    #expect(pair.takeClosed().isEmpty)
    pair.server.reset(stream, .internalError)
    try pair.settle()
    let closed = pair.takeClosed()
    #expect(closed.map(\.code) == [.internalError])
    #expect(closed[0].response == nil)
  }

  @Test func `a cancelled request ends on both sides`() throws {
    let pair = SessionPair()
    try pair.settle()
    let request = try pair.client.request(head(), body: [1], tag: 5)
    try pair.settle()
    let stream = try #require(pair.drainRequests().first?.stream)
    pair.client.cancel(request)
    try pair.settle()
    #expect(pair.takeClosed().map(\.code) == [.cancel])
    pair.server.respond(to: stream, answer())  // too late, and harmless
    try pair.settle()
  }

  @Test func `requests that are partly sent can be refused, and complete ones continue`() throws {
    var small = HTTP2SessionSettings()
    small.streamWindowBytes = 1000
    small.streamsMax = 2
    let pair = SessionPair(server: small)
    try pair.settle()
    try pair.client.request(head("/whole"), body: [1], tag: 1)
    try pair.client.request(head("/half"), body: [UInt8](repeating: 1, count: 5000), tag: 2)
    try pair.client.request(head("/waits"), body: [1], tag: 3)
    pair.client.refuseUnfinished()
    try pair.settle()
    let refused = pair.takeClosed()
    #expect(refused.map(\.tag).sorted() == [2, 3])
    #expect(refused.allSatisfy { $0.code == .refusedStream })
    let requests = pair.drainRequests()
    #expect(requests.map { $0.message.headers.text(":path") } == ["/whole"])
    pair.server.respond(to: requests[0].stream, answer())
    try pair.settle()
    #expect(pair.takeClosed().map(\.tag) == [1])
  }

  @Test func `an interim response is ignored`() throws {
    let pair = SessionPair()
    try pair.settle()
    try pair.client.request(head(), body: [], tag: 1)
    try pair.settle()
    let stream = try #require(pair.drainRequests().first?.stream)
    // :status 100, then 200, as HPACK literals; the session's server side has no call for an interim response.
    var bytes: [UInt8] = [0, 0, 5, 1, 4, 0, 0, 0, UInt8(stream), 0x08, 3] + Array("103".utf8)
    bytes += [0, 0, 1, 1, 5, 0, 0, 0, UInt8(stream), 0x88]
    try pair.hear(bytes)
    #expect(pair.takeClosed().map { $0.response?.status } == [200])
  }

  @Test func `a PING is answered with its number`() throws {
    let pair = SessionPair()
    try pair.settle()
    pair.client.ping(0x0102_0304_0506_0708)
    try pair.settle()
    let numbers = pair.clientEvents.compactMap { if case .pong(let number) = $0 { number } else { nil } }
    #expect(numbers == [0x0102_0304_0506_0708])
  }

  @Test func `many streams reuse their slots without mixing up answers`() throws {
    let pair = SessionPair()
    try pair.settle()
    for round in 0..<20 {
      for tag in 0..<50 { try pair.client.request(head("/\(round)/\(tag)"), body: [UInt8(tag)], tag: tag) }
      try pair.settle()
      for request in pair.drainRequests().reversed() {
        let (stream, message) = (request.stream, request.message)
        var headers = answer()
        headers.add("path", try #require(message.headers.text(":path")))
        pair.server.respond(to: stream, headers, body: message.body)
      }
      try pair.settle()
      let closed = pair.takeClosed()
      #expect(closed.count == 50)
      for end in closed {
        #expect(end.response?.headers.text("path") == "/\(round)/\(end.tag)")
        #expect(end.response?.body == [UInt8(end.tag)])
      }
    }
  }
}

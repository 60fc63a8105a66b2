// A client's side of HTTP/2 (RFC 9113): requests in, frames out; bytes in, events out. It does no I/O and knows no time.
//
// Our own, for this is where a push spends most of its way (docs/adr/0018): a request is written once, straight into what
// the connection sends, and nothing is kept of it but a small record. Only its HPACK decoder is nghttp2's; servers here
// (`HTTP2ServerSession`) are nghttp2's as a whole, so that neither side is tested by its own misunderstandings.
//
// This file has what is sent; what is received is in `HTTP2ClientSession+Receiving`.

/// The client's end of an HTTP/2 connection.
public struct HTTP2ClientSession: ~Copyable {
  /// A request without an end. Only numbers, so that it is read for nothing; see `bodies` and `responses`.
  struct Stream {
    /// 0 while it waits to be opened.
    var id: Int32 = 0
    var tag: Int
    /// How much of a body the peer takes on this stream.
    var sendWindow = 0
    /// What flow control holds back of the body.
    var unsent = 0
    /// The head of the answer has come.
    var hasResponse = false
    /// Bytes of the answer's body.
    var bodyBytes = 0
    /// Bytes since it was last said that there is room for more.
    var received = 0
    /// What its answer may still cost before the connection's credits are used.
    var credits: Int32 = 0
    /// Bytes put out when the request was whole, since the session began; meaningless while it is not.
    var wholeAt: UInt64 = 0
  }

  /// A request that has to wait until a stream may be opened for it.
  struct Waiting {
    var slot: Int
    var head: HTTP2RequestHead
    var body: [UInt8]
  }

  /// Where the head of a request stands in what was put out.
  public struct Departure: Sendable {
    public var tag: Int
    /// Bytes put out before it, since the session began.
    public var outputBefore: UInt64
  }

  let settings: HTTP2SessionSettings

  // What is sent.
  /// What is to be sent; whoever sends it takes it out.
  var output: [UInt8] = []
  /// Answers to PING and SETTINGS in `output`.
  var acknowledgements = 0
  /// Bytes that were taken out of `output`.
  private var outputTaken: UInt64 = 0
  /// Requests whose heads were put out, in order; whoever reads them takes them out.
  public var departures: [Departure] = []
  private var encoder = HPACKEncoder()
  private var sendWindow = HTTP2ClientSession.windowBytes
  private var peerStreamWindow = HTTP2ClientSession.windowBytes
  private var peerStreamsMaxTold = Int.max
  private var waiting: [Waiting] = []
  /// Slots of streams with something unsent, in order.
  private var blocked: [Int] = []
  /// Streams are opened while fewer bytes than this are to be sent; requests wait here meanwhile, where they still can be
  /// taken back.
  public var outputLimit = Int.max

  // Streams.
  var streams = SlotTable<Stream>()
  /// By slot: bodies of which something is unsent.
  private var bodies: [[UInt8]] = []
  /// By slot: answers whose head has come.
  var responses: [HTTP2Message] = []
  private var numbers: HTTP2StreamNumbers
  private var openCount = 0

  // What is received.
  var decoder = HPACKDecoder()
  /// The beginning of a frame whose rest has not come.
  var partial: [UInt8] = []
  /// The header block under way, whose CONTINUATION has to come next.
  var fragments: (head: HTTP2FrameHead, block: [UInt8])?
  /// Bytes of all answers since it was last said that there is room for more.
  var received = 0
  var events: [HTTP2Event] = []
  private var spareMessages: [HTTP2Message] = []
  private static let sparesMax = 1024
  /// Whether the peer's first SETTINGS arrived.
  public internal(set) var hasPeerSettings = false
  /// The last of our streams that the peer will look at, once it has said GOAWAY.
  var lastStream: Int32?
  /// Whether the peer broke the protocol: nothing more is read.
  var isBroken = false
  /// What the peer may still cost.
  public internal(set) var budget: HTTP2PeerBudget

  /// What every window is before anybody says anything (RFC 9113 §6.9.2).
  static let windowBytes = 65_535
  static let windowBytesMax = Int(Int32.max)

  /// Makes a session and puts out its preface.
  public init(settings: HTTP2SessionSettings = HTTP2SessionSettings()) {
    self.settings = settings
    numbers = HTTP2StreamNumbers(firstID: settings.firstStreamID)
    budget = HTTP2PeerBudget(limits: settings.budget)
    output.append(contentsOf: Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8))
    output.appendSettings([
      (HTTP2Setting.enablePush, 0), (HTTP2Setting.streamWindow, UInt32(settings.streamWindowBytes)),
      (HTTP2Setting.headerListSize, UInt32(settings.budget.headerListBytesMax)),
    ])
    let more = Int(settings.connectionWindowBytes) - Self.windowBytes
    if more > 0 { output.appendWindowUpdate(0, more) }
  }

  // MARK: - Output

  /// Moves what is to be sent behind what `destination` holds.
  public mutating func takeOutput(into destination: inout [UInt8]) {
    outputTaken += UInt64(output.count)
    acknowledgements = 0
    if destination.isEmpty { return swap(&output, &destination) }
    destination.append(contentsOf: output)
    output.removeAll(keepingCapacity: true)
  }

  /// Gives the events since the last call, in order, in exchange for an empty array whose memory is used again.
  public mutating func takeEvents(into batch: inout [HTTP2Event]) {
    batch.removeAll(keepingCapacity: true)
    swap(&batch, &events)
  }

  /// Takes the memory of a message back that came in an event and has been read.
  public mutating func recycle(_ message: consuming HTTP2Message) {
    guard spareMessages.count < Self.sparesMax, message.isReusable else { return }
    message.removeAll()
    spareMessages.append(message)
  }

  mutating func newMessage() -> HTTP2Message { spareMessages.popLast() ?? HTTP2Message() }

  // MARK: - Requests

  /// Streams the peer allows at a time: its SETTINGS, or the configured guess before they arrive.
  public var peerStreamsMax: Int {
    hasPeerSettings ? peerStreamsMaxTold : Int(settings.peerStreamsMaxBeforeSettings)
  }

  /// Whether every stream id has been used: what is in flight is finished, and nothing more can be requested.
  public var isExhausted: Bool { !numbers.areLeft }

  /// Whether the peer said GOAWAY.
  public var isGoingAway: Bool { lastStream != nil }

  /// Puts a request out, or keeps it until a stream may be opened.
  ///
  /// - Parameters:
  ///   - body: sent in parts as flow control allows; empty for none.
  ///   - tag: comes back in `HTTP2Event.ended` and `departures`; not negative.
  /// - Returns: the session's number for the request, until its end.
  /// - Throws: `HTTP2Error` when no stream can be opened any more; the peer never heard of the request.
  @discardableResult
  public mutating func request(
    _ head: borrowing HTTP2RequestHead, body: [UInt8], tag: Int
  ) throws(HTTP2Error) -> Int {
    guard numbers.areLeft else { throw HTTP2Error("all stream ids of the connection have been used") }
    let slot = streams.insert(Stream(tag: tag))
    if waiting.isEmpty, mayOpenNow {
      open(slot, head, body)
    } else if isGoingAway || isBroken {
      close(slot, .refusedStream)
    } else {
      waiting.append(Waiting(slot: slot, head: copy head, body: body))
    }
    return slot
  }

  /// Whether a request waits that could be opened now.
  public var hasWaiting: Bool { !waiting.isEmpty && mayOpenNow }

  /// Opens streams for requests that have waited, as far as that is possible now.
  public mutating func openWaiting() {
    guard !waiting.isEmpty, mayOpenNow else { return }
    var count = 0
    while count < waiting.count, mayOpenNow, numbers.areLeft {
      let next = waiting[count]
      open(next.slot, next.head, next.body)
      count += 1
    }
    waiting.removeFirst(count)
    if !numbers.areLeft { refuseWaiting() }
  }

  /// Takes a request back; it ends as cancelled. The peer hears of that if it has heard of the request.
  public mutating func cancel(_ slot: Int, _ code: HTTP2ErrorCode = .cancel) {
    guard let stream = streams[slot] else { return }
    if stream.id == 0 {
      waiting.removeAll { $0.slot == slot }
    } else {
      output.appendReset(stream.id, code)
    }
    close(slot, code)
  }

  /// Refuses the requests that have not been put out as a whole: no peer acts on a request whose end it has not seen.
  public mutating func refuseUnfinished() {
    refuseWaiting()
    for slot in blocked {
      guard let stream = streams[slot] else { continue }
      output.appendReset(stream.id, .cancel)
      close(slot, .refusedStream)
    }
  }

  /// Whether a request was put out to its end within the first `written` bytes of all output. Before that no peer can have
  /// acted on it.
  public func isWhole(_ slot: Int, within written: UInt64) -> Bool {
    guard let stream = streams[slot] else { return true }
    return stream.id != 0 && stream.unsent == 0 && stream.wholeAt <= written
  }

  /// Credits come back to the peer with time.
  public mutating func refillBudget(_ now: Instant) { budget.refill(now) }

  /// Puts PING out; the answer is the event `pong` with the same number.
  public mutating func ping(_ number: UInt64) {
    output.appendPing(number, acknowledges: false)
  }

  /// Puts GOAWAY out.
  public mutating func goAway(_ code: HTTP2ErrorCode = .noError) {
    output.appendGoAway(code)
  }

  private var mayOpenNow: Bool {
    !isGoingAway && !isBroken && openCount < peerStreamsMax && output.count < outputLimit
  }

  private mutating func open(_ slot: Int, _ head: borrowing HTTP2RequestHead, _ body: [UInt8]) {
    let id = numbers.add(slot)
    openCount += 1
    departures.append(Departure(tag: streams[slot]?.tag ?? -1, outputBefore: outputEnd))
    appendHead(head, id, endsStream: body.isEmpty)
    streams[slot]?.id = id
    streams[slot]?.sendWindow = peerStreamWindow
    streams[slot]?.credits = settings.budget.creditsPerStream
    let end = outputEnd
    streams[slot]?.wholeAt = end
    guard !body.isEmpty else { return }
    // In one frame, nearly always.
    if body.count <= min(sendWindow, peerStreamWindow, HTTP2FrameHead.payloadBytesMax) {
      appendData(body, 0..<body.count, slot, id)
    } else {
      while bodies.count <= slot { bodies.append([]) }
      bodies[slot] = body
      streams[slot]?.unsent = body.count
      blocked.append(slot)
      sendBlocked()
    }
  }

  private mutating func appendData(_ body: borrowing [UInt8], _ part: Range<Int>, _ slot: Int, _ id: Int32) {
    let flags = part.upperBound == body.count ? HTTP2FrameFlags.endsStream : 0
    output.appendFrameHead(length: part.count, HTTP2FrameType.data, flags: flags, stream: id)
    output.append(copying: body, part)
    sendWindow -= part.count
    streams[slot]?.sendWindow -= part.count
    let end = outputEnd
    streams[slot]?.wholeAt = end
  }

  /// Bytes put out since the session began.
  private var outputEnd: UInt64 { outputTaken + UInt64(output.count) }

  private mutating func appendHead(_ head: borrowing HTTP2RequestHead, _ id: Int32, endsStream: Bool) {
    let place = output.count
    let flags = endsStream ? HTTP2FrameFlags.endsStream : 0
    output.appendFrameHead(length: 0, HTTP2FrameType.headers, flags: flags | HTTP2FrameFlags.endsHeaders, stream: id)
    let start = output.count
    encoder.append(head, to: &output)
    let count = output.count - start
    if count <= HTTP2FrameHead.payloadBytesMax { return output.setFrameLength(count, at: place) }
    // Too long for a frame: the rest in others.
    let block = Array(output[start...])
    output.removeSubrange(place...)
    var type = HTTP2FrameType.headers
    var rest = block[...]
    while !rest.isEmpty {
      let part = rest.prefix(HTTP2FrameHead.payloadBytesMax)
      rest = rest.dropFirst(part.count)
      let ends = rest.isEmpty ? HTTP2FrameFlags.endsHeaders : 0
      let flags = type == HTTP2FrameType.headers ? flags | ends : ends
      output.appendFrameHead(length: part.count, type, flags: flags, stream: id)
      output.append(contentsOf: part)
      type = HTTP2FrameType.continuation
    }
  }

  // MARK: - Flow control

  /// Sends what flow control held back, as far as it does not any more.
  private mutating func sendBlocked() {
    var count = 0
    var kept: [Int] = []  // those whose own window is full, and the one with which the connection's became so
    while count < blocked.count, sendWindow > 0 {
      let slot = blocked[count]
      count += 1
      if !sendBody(slot) { kept.append(slot) }
    }
    if count > 0 { blocked.replaceSubrange(..<count, with: kept) }
  }

  /// Sends what there is room for of a stream's body; whether that was all.
  private mutating func sendBody(_ slot: Int) -> Bool {
    while let stream = streams[slot], stream.unsent > 0 {
      let count = min(stream.unsent, sendWindow, stream.sendWindow, HTTP2FrameHead.payloadBytesMax)
      guard count > 0 else { return false }
      let start = bodies[slot].count - stream.unsent
      appendData(bodies[slot], start..<(start + count), slot, stream.id)
      streams[slot]?.unsent -= count
      budget.didSend(count)
    }
    bodies[slot] = []
    return true
  }

  /// The peer takes so many bytes more, on a stream or in all; false if that is more than there can be.
  mutating func widen(_ slot: Int?, by increment: Int) -> Bool {
    if let slot {
      guard let window = streams[slot]?.sendWindow, window + increment <= Self.windowBytesMax else { return false }
      streams[slot]?.sendWindow = window + increment
    } else {
      guard sendWindow + increment <= Self.windowBytesMax else { return false }
      sendWindow += increment
    }
    sendBlocked()
    return true
  }

  // MARK: - Answers

  /// The head of an answer has come, and more is to follow.
  mutating func keepResponse(_ slot: Int, _ message: consuming HTTP2Message) {
    while responses.count <= slot { responses.append(HTTP2Message()) }
    swap(&responses[slot], &message)
    streams[slot]?.hasResponse = true
  }

  mutating func takeResponse(_ slot: Int) -> HTTP2Message {
    streams[slot]?.hasResponse = false
    return responses[slot].take()
  }

  // MARK: - The peer's settings

  mutating func limitStreams(to streamsMax: UInt32) { peerStreamsMaxTold = Int(streamsMax) }

  mutating func limitTable(to bytes: UInt32) { encoder.limitTable(to: Int(bytes)) }

  /// The window of all streams, those that are open included; false if that is more than there can be.
  mutating func setStreamWindow(_ window: Int) -> Bool {
    let difference = window - peerStreamWindow
    peerStreamWindow = window
    for slot in streams.occupied where streams[slot]?.id != 0 {
      guard let now = streams[slot]?.sendWindow, now + difference <= Self.windowBytesMax else { return false }
      streams[slot]?.sendWindow = now + difference
    }
    sendBlocked()
    return true
  }

  // MARK: - Streams

  /// What is known of a stream id that the peer named.
  func place(of id: Int32) -> HTTP2StreamNumbers.Place { numbers[id] }

  /// Ends a stream for the owner.
  mutating func close(_ slot: Int, _ code: HTTP2ErrorCode, response: consuming HTTP2Message? = nil) {
    guard let stream = streams.remove(slot) else { return }
    if stream.id != 0 {
      numbers.remove(stream.id)
      openCount -= 1
      budget.didEndStream()
    }
    if stream.unsent > 0 {
      blocked.removeAll { $0 == slot }
      bodies[slot] = []
    }
    if stream.hasResponse { recycle(takeResponse(slot)) }
    events.append(.ended(tag: stream.tag, code, response: response))
  }

  /// Refuses what the peer, going away, will not look at.
  mutating func refuse(above last: Int32) {
    for slot in streams.occupied {
      if let id = streams[slot]?.id, id > last { close(slot, .refusedStream) }
    }
    refuseWaiting()
  }

  private mutating func refuseWaiting() {
    let refused = waiting
    waiting = []
    for request in refused { close(request.slot, .refusedStream) }
  }
}

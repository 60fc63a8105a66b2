// A client's side of HTTP/2 (RFC 9113). It turns requests into frames, and received bytes into events. It has no I/O and no clock.
//
// It is our own code because a push spends most of its processor time here (docs/adr/0018). A request is written once, directly
// into the output of the connection, and only a small record of it is kept. The HPACK decoder is nghttp2's. Our servers
// (`HTTP2ServerSession`) use nghttp2 entirely, so that the tests of one side do not share the errors of the other.
//
// This file sends. `HTTP2ClientSession+Receiving` receives.

/// The client's end of an HTTP/2 connection.
public struct HTTP2ClientSession: ~Copyable {
  /// A request that has not ended. Stores only integers, so copying it touches no reference counts. `bodies` and `responses` have
  /// the rest.
  struct Stream {
    /// The id of the stream; 0 while it waits to be opened.
    var id: Int32 = 0
    var tag: Int
    /// The peer's window of this stream, in bytes.
    var sendWindow = 0
    /// Number of bytes of the body that flow control holds back.
    var unsent = 0
    /// Whether the head of the answer has come.
    var hasResponse = false
    /// Number of bytes of the answer's body.
    var bodyBytes = 0
    /// Number of bytes received since the last WINDOW_UPDATE.
    var received = 0
    /// The credits left for its answer. After them the connection's credits are used.
    var credits: Int32 = 0
    /// The position in all output at the end of the request. Meaningless until the request is complete in the output.
    var wholeAt: UInt64 = 0
  }

  /// A request that waits until a stream may be opened for it.
  struct Waiting {
    var slot: Int
    var head: HTTP2RequestHead
    var body: [UInt8]
  }

  /// The position of a request's head in the output.
  public struct Departure: Sendable {
    public var tag: Int
    /// The position in all output where the head begins.
    public var outputBefore: UInt64
  }

  let settings: HTTP2SessionSettings

  // What is sent.
  /// The bytes to send. The caller removes the bytes it has sent.
  var output: [UInt8] = []
  /// Number of unsent PING and SETTINGS acknowledgements in `output`. A peer that never reads is disconnected above the maximum.
  var acknowledgements = 0
  /// Number of bytes that were removed from `output`.
  private var outputTaken: UInt64 = 0
  /// Requests whose heads are in the output, in order. The caller removes the elements it has read.
  public var departures: [Departure] = []
  private var encoder = HPACKEncoder()
  private var sendWindow = HTTP2ClientSession.windowBytes
  private var peerStreamWindow = HTTP2ClientSession.windowBytes
  private var peerStreamsMaxTold = Int.max
  private var waiting: [Waiting] = []
  /// Slots of streams with unsent bytes of a body, in order.
  private var blocked: [Int] = []
  /// Streams are opened only while fewer bytes than this are unsent. Other requests wait in the session, where they can still be
  /// taken back.
  public var outputLimit = Int.max

  // Streams.
  var streams = SlotTable<Stream>()
  /// By slot: bodies with unsent bytes.
  private var bodies: [[UInt8]] = []
  /// By slot: answers whose head has come.
  var responses: [HTTP2Message] = []
  private var numbers: HTTP2StreamNumbers
  private var openCount = 0

  // What is received.
  var decoder = HPACKDecoder()
  /// The beginning of a frame that has not come completely.
  var partial: [UInt8] = []
  /// The header block under way. Its CONTINUATION must come next.
  var fragments: (head: HTTP2FrameHead, block: [UInt8])?
  /// Number of bytes of all answers since the last WINDOW_UPDATE of the connection.
  var received = 0
  var events: [HTTP2Event] = []
  private var spareMessages: [HTTP2Message] = []
  private static let sparesMax = 1024
  /// Whether the peer's first SETTINGS arrived.
  public internal(set) var hasPeerSettings = false
  /// The last of our streams that the peer handles, once it has sent GOAWAY.
  var lastStream: Int32?
  /// Whether the peer caused a connection error. Nothing more is read then.
  var isBroken = false
  /// The peer's credits.
  public internal(set) var budget: HTTP2PeerBudget

  /// The default size of every window (RFC 9113 §6.9.2).
  static let windowBytes = 65_535
  static let windowBytesMax = Int(Int32.max)

  /// Creates a session, with its preface in the output.
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

  /// Moves the output to the end of `destination`.
  public mutating func drainOutput(into destination: inout [UInt8]) {
    outputTaken += UInt64(output.count)
    acknowledgements = 0
    if destination.isEmpty { return swap(&output, &destination) }
    destination.append(contentsOf: output)
    output.removeAll(keepingCapacity: true)
  }

  /// Swaps the events since the last call, in order, for an empty array whose memory is used again.
  public mutating func drainEvents(into batch: inout [HTTP2Event]) {
    batch.removeAll(keepingCapacity: true)
    swap(&batch, &events)
  }

  /// Takes back the memory of a message that came in an event and was read.
  public mutating func recycle(_ message: consuming HTTP2Message) {
    guard spareMessages.count < Self.sparesMax, message.isReusable else { return }
    message.removeAll()
    spareMessages.append(message)
  }

  mutating func newMessage() -> HTTP2Message { spareMessages.popLast() ?? HTTP2Message() }

  // MARK: - Requests

  /// Maximum number of streams that the peer allows: from its SETTINGS, or the configured value before they arrive.
  public var peerStreamsMax: Int {
    hasPeerSettings ? peerStreamsMaxTold : Int(settings.peerStreamsMaxBeforeSettings)
  }

  /// Whether all stream ids are used. Requests in flight finish; new ones are not possible.
  public var isExhausted: Bool { !numbers.areLeft }

  /// Whether the peer sent GOAWAY.
  public var isGoingAway: Bool { lastStream != nil }

  /// Writes a request into the output, or keeps it until a stream may be opened.
  ///
  /// - Parameters:
  ///   - body: sent in parts as flow control allows; empty for none.
  ///   - tag: comes back in `HTTP2Event.ended` and `departures`; not negative.
  /// - Returns: the session's number for the request, until its end.
  /// - Throws: `HTTP2Error` if no stream can be opened any more. The peer never gets the request.
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

  /// Whether a stream could be opened now for a waiting request.
  public var hasWaiting: Bool { !waiting.isEmpty && mayOpenNow }

  /// Opens streams for waiting requests, as many as possible now.
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

  /// Cancels a request. If its stream was opened, the peer gets RST_STREAM.
  public mutating func cancel(_ slot: Int, _ code: HTTP2ErrorCode = .cancel) {
    guard let stream = streams[slot] else { return }
    if stream.id == 0 {
      waiting.removeAll { $0.slot == slot }
    } else {
      output.appendReset(stream.id, code)
    }
    close(slot, code)
  }

  /// Refuses requests that are not complete in the output. No peer acts on a request whose end it has not seen.
  ///
  /// - Parameter isRefused: whether to refuse the request with this tag.
  public mutating func refuseUnfinished(where isRefused: (Int) -> Bool = { _ in true }) {
    refuseWaiting(where: isRefused)
    for slot in blocked {
      guard let stream = streams[slot], isRefused(stream.tag) else { continue }
      output.appendReset(stream.id, .cancel)
      close(slot, .refusedStream)
    }
  }

  /// Whether the end of a request is within the first `written` bytes of all output. Before that no peer can have acted on it.
  public func isWhole(_ slot: Int, within written: UInt64) -> Bool {
    guard let stream = streams[slot] else { return true }
    return stream.id != 0 && stream.unsent == 0 && stream.wholeAt <= written
  }

  /// Restores credits of the peer as time passes.
  public mutating func refillBudget(_ now: Instant) { budget.refill(now) }

  /// Sends PING. The answer is the event `pong` with the same number.
  public mutating func ping(_ number: UInt64) {
    output.appendPing(number, acknowledges: false)
  }

  /// Sends GOAWAY.
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
    // Nearly always one frame.
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

  /// Number of bytes of output since the session began.
  private var outputEnd: UInt64 { outputTaken + UInt64(output.count) }

  private mutating func appendHead(_ head: borrowing HTTP2RequestHead, _ id: Int32, endsStream: Bool) {
    let place = output.count
    let flags = endsStream ? HTTP2FrameFlags.endsStream : 0
    output.appendFrameHead(length: 0, HTTP2FrameType.headers, flags: flags | HTTP2FrameFlags.endsHeaders, stream: id)
    let start = output.count
    encoder.append(head, to: &output)
    let count = output.count - start
    if count <= HTTP2FrameHead.payloadBytesMax { return output.setFrameLength(count, at: place) }
    // It is too long for one frame. The rest follows in CONTINUATION frames.
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

  /// Sends the bytes that flow control held back, as far as the windows allow now.
  private mutating func sendBlocked() {
    var count = 0
    var kept: [Int] = []  // streams whose own window is full, and the one that filled the connection's
    while count < blocked.count, sendWindow > 0 {
      let slot = blocked[count]
      count += 1
      if !sendBody(slot) { kept.append(slot) }
    }
    if count > 0 { blocked.replaceSubrange(..<count, with: kept) }
  }

  /// Sends as much of a stream's body as the windows allow. Returns whether that was the rest.
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

  /// Handles WINDOW_UPDATE, of a stream or of the connection. Returns false if the window would exceed the maximum.
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

  /// The head of an answer has come, and more follows.
  mutating func keepResponse(_ slot: Int, _ message: consuming HTTP2Message) {
    while responses.count <= slot { responses.append(HTTP2Message()) }
    swap(&responses[slot], &message)
    streams[slot]?.hasResponse = true
  }

  mutating func removeResponse(_ slot: Int) -> HTTP2Message {
    streams[slot]?.hasResponse = false
    return responses[slot].removeMessage()
  }

  // MARK: - The peer's settings

  mutating func limitStreams(to streamsMax: UInt32) { peerStreamsMaxTold = Int(streamsMax) }

  mutating func limitTable(to bytes: UInt32) { encoder.limitTable(to: Int(bytes)) }

  /// Sets the window of all streams, including open ones. Returns false if a window would exceed the maximum.
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

  /// Looks up a stream id that the peer named.
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
    if stream.hasResponse { recycle(removeResponse(slot)) }
    events.append(.ended(tag: stream.tag, code, response: response))
  }

  /// Refuses the requests that the peer does not handle after its GOAWAY.
  mutating func refuse(above last: Int32) {
    for slot in streams.occupied {
      if let id = streams[slot]?.id, id > last { close(slot, .refusedStream) }
    }
    refuseWaiting()
  }

  private mutating func refuseWaiting(where isRefused: (Int) -> Bool = { _ in true }) {
    let all = waiting
    waiting = []
    for request in all {
      guard let stream = streams[request.slot] else { continue }
      if isRefused(stream.tag) { close(request.slot, .refusedStream) } else { waiting.append(request) }
    }
  }
}

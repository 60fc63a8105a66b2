// Our client session and its owner, reduced to what can be compared.

/// An `HTTP2ClientSession` and its events.
final class OwnClient {
  private var session: HTTP2ClientSession
  /// The session's numbers of the open requests, by tag.
  private var slots: [Int: Int] = [:]
  private var batch: [HTTP2Event] = []
  private var unread: [UInt8] = []

  /// The events so far; the owner removes those that it has read.
  var events: [ClientEvent] = []
  /// All bytes that were sent.
  private(set) var output: [UInt8] = []
  /// The code of the GOAWAY that ended the connection.
  private(set) var error: UInt32?
  private(set) var dataBytes = 0

  init(settings: HTTP2SessionSettings) {
    session = HTTP2ClientSession(settings: settings)
    drainOutput()
    unread.removeFirst(24)  // the preface
    readOutput()
  }

  func receive(_ bytes: ArraySlice<UInt8>) {
    // A separate copy, so that AddressSanitizer detects reads beyond its end.
    let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
    defer { copy.deallocate() }
    copy.copyBytes(from: bytes)
    let wasOver = error != nil
    do {
      try session.receive(UnsafeRawBufferPointer(copy))
      drainOutput()
      readOutput()
      require(wasOver || error == nil, "GOAWAY, and no error")
    } catch {
      drainOutput()
      readOutput()
      require(self.error != nil, "an error, and no GOAWAY")
    }
    drainEvents()
  }

  func request(tag: Int, body: Int) {
    do {
      let slot = try session.request(HTTP2SessionFuzz.head, body: [UInt8](repeating: 7, count: body), tag: tag)
      slots[tag] = slot
    } catch { fail("no request is taken: \(error)") }
    finishTurn()
  }

  func openWaiting() {
    session.openWaiting()
    require(!session.hasWaiting, "a request waits that could be opened")
    finishTurn()
  }

  func cancel(tag: Int) {
    if let slot = slots[tag] { session.cancel(slot) }
    finishTurn()
  }

  func ping(_ number: UInt64) {
    session.ping(number)
    finishTurn()
  }

  /// The open requests.
  var live: [Int] { slots.keys.sorted() }

  private func finishTurn() {
    drainOutput()
    readOutput()
    drainEvents()
  }

  private func drainEvents() {
    session.drainEvents(into: &batch)
    for event in batch {
      switch event {
      case .settings: events.append(.settings)
      case .pong(let number): events.append(.pong(number))
      case .goAway(let last, let code, let data):
        events.append(.goAway(lastStream: last, code: code.rawValue, debugData: data))
      case .ended(let tag, let code, let response):
        require(slots.removeValue(forKey: tag) != nil, "a request ended twice")
        var answer: ClientAnswer?
        if let response {
          var fields: [[UInt8]] = []
          response.headers.forEach { name, value in fields += [Array(name), Array(value)] }
          answer = ClientAnswer(fields: fields, body: response.body, isTruncated: response.isTruncated)
          session.recycle(response)
        }
        events.append(.ended(tag: tag, code: code.rawValue, answer: answer))
      }
    }
  }

  private func drainOutput() {
    var more: [UInt8] = []
    session.drainOutput(into: &more)
    output += more
    unread += more
  }

  /// Frames are sent whole, and no larger than every server accepts.
  private func readOutput() {
    var rest = unread[...]
    while !rest.isEmpty {
      require(rest.count >= HTTP2FrameHead.byteCount, "half a frame was put out")
      let length = Int(WireFrame.number(rest.prefix(3)))
      require(length <= HTTP2FrameHead.payloadBytesMax, "a frame that no server need take")
      require(rest.count >= HTTP2FrameHead.byteCount + length, "half a frame was put out")
      let frame = WireFrame(bytes: Array(rest.prefix(HTTP2FrameHead.byteCount + length)))
      rest = rest.dropFirst(frame.bytes.count)
      require(error == nil, "something was put out behind the GOAWAY")
      switch frame.type {
      case HTTP2FrameType.goAway: error = WireFrame.number(frame.payload.dropFirst(4).prefix(4))
      case HTTP2FrameType.data: dataBytes += length
      case HTTP2FrameType.windowUpdate:
        require(WireFrame.number(frame.payload) & 0x7FFF_FFFF > 0, "WINDOW_UPDATE of nothing was put out")
      default: break
      }
    }
    unread = []
  }
}

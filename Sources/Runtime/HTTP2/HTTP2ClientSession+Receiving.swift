// How a client's session handles received bytes, frame by frame (RFC 9113 §6).
//
// A stream error ends the stream. After a connection error `receive` throws, a GOAWAY with the reason is in the output, and nothing
// more is read.

extension HTTP2ClientSession {
  /// Handles bytes from the peer.
  ///
  /// - Throws: `HTTP2Error` after a connection error. The owner sends the output and closes.
  public mutating func receive(_ bytes: UnsafeRawBufferPointer) throws(HTTP2Error) {
    guard !isBroken else { return }
    var rest = unsafe bytes
    if !partial.isEmpty { try unsafe finishPartial(&rest) }
    while rest.count >= HTTP2FrameHead.byteCount {
      let head = unsafe HTTP2FrameHead(rest)
      try check(head)
      let end = HTTP2FrameHead.byteCount + head.length
      guard rest.count >= end else { break }
      try unsafe handle(head, UnsafeRawBufferPointer(rebasing: rest[HTTP2FrameHead.byteCount..<end]))
      unsafe rest = UnsafeRawBufferPointer(rebasing: rest[end...])
    }
    if unsafe !rest.isEmpty { unsafe partial.append(contentsOf: rest) }
  }

  /// Completes the frame whose beginning came earlier, as far as its bytes have come.
  private mutating func finishPartial(_ rest: inout UnsafeRawBufferPointer) throws(HTTP2Error) {
    while true {
      var wanted = HTTP2FrameHead.byteCount
      if partial.count >= wanted {
        let head = unsafe partial.withUnsafeBytes { unsafe HTTP2FrameHead($0) }
        try check(head)
        wanted += head.length
        if partial.count == wanted {
          let frame = partial
          partial.removeAll(keepingCapacity: true)
          var failure: HTTP2Error?
          unsafe frame.withUnsafeBytes { frame in
            do throws(HTTP2Error) {
              try unsafe handle(head, UnsafeRawBufferPointer(rebasing: frame[HTTP2FrameHead.byteCount...]))
            } catch {
              failure = error
            }
          }
          if let failure { throw failure }
          return
        }
      }
      guard unsafe !rest.isEmpty else { return }
      let count = min(wanted - partial.count, rest.count)
      unsafe partial.append(contentsOf: rest[..<count])
      unsafe rest = UnsafeRawBufferPointer(rebasing: rest[count...])
    }
  }

  private mutating func check(_ head: HTTP2FrameHead) throws(HTTP2Error) {
    if head.length > HTTP2FrameHead.payloadBytesMax { throw broken(.frameSizeError, "a frame is too long") }
  }

  // MARK: - Frames

  private mutating func handle(_ head: HTTP2FrameHead, _ payload: UnsafeRawBufferPointer) throws(HTTP2Error) {
    if let fragments, head.type != HTTP2FrameType.continuation || head.stream != fragments.head.stream {
      throw broken(.protocolError, "a header block was interrupted")
    }
    if !hasPeerSettings, head.type != HTTP2FrameType.settings || head.has(HTTP2FrameFlags.acknowledges) {
      throw broken(.protocolError, "the first frame is not SETTINGS")
    }
    // DATA and HEADERS use their streams' credits.
    if head.type > HTTP2FrameType.headers { try charge(head) }
    switch head.type {
    case HTTP2FrameType.data: try unsafe handleData(head, payload)
    case HTTP2FrameType.headers: try unsafe handleHeaders(head, payload)
    case HTTP2FrameType.continuation: try unsafe handleContinuation(head, payload)
    case HTTP2FrameType.reset: try unsafe handleReset(head, payload)
    case HTTP2FrameType.settings: try unsafe handleSettings(head, payload)
    case HTTP2FrameType.ping: try unsafe handlePing(head, payload)
    case HTTP2FrameType.goAway: try unsafe handleGoAway(head, payload)
    case HTTP2FrameType.windowUpdate: try unsafe handleWindowUpdate(head, payload)
    case HTTP2FrameType.pushPromise: throw broken(.protocolError, "PUSH_PROMISE, which we said we do not take")
    case HTTP2FrameType.priority:
      if head.length != 5 { throw broken(.frameSizeError, "PRIORITY of \(head.length) bytes") }
      if head.stream == 0 { throw broken(.protocolError, "PRIORITY of no stream") }
    default: break  // unknown frames are ignored (RFC 9113 §4.1)
    }
  }

  // MARK: - What they cost

  /// Spends credits of the connection for a frame.
  private mutating func charge(_ head: HTTP2FrameHead) throws(HTTP2Error) {
    var cost = budget.cost(ofFrame: head.length)
    switch head.type {
    case HTTP2FrameType.settings: cost += budget.limits.creditsForAllStreams + head.length / 6
    case HTTP2FrameType.goAway: cost += budget.limits.creditsForAllStreams
    default: break
    }
    if !budget.spend(cost) { throw overspent() }
  }

  /// Spends credits of a stream for a frame, and then the connection's. Nil: the stream has ended.
  private mutating func charge(_ cost: Int, to slot: Int?) throws(HTTP2Error) {
    guard let slot, var credits = streams[slot]?.credits else {
      if !budget.spend(cost) { throw overspent() }
      return
    }
    let isPaid = budget.spend(cost, of: &credits)
    streams[slot]?.credits = credits
    if !isPaid { throw overspent() }
  }

  private mutating func overspent() -> HTTP2Error {
    broken(.enhanceYourCalm, "too many frames or bytes that bring no answer")
  }

  // MARK: - Answers

  private mutating func handleData(_ head: HTTP2FrameHead, _ payload: UnsafeRawBufferPointer) throws(HTTP2Error) {
    let data = try unsafe unpadded(head, payload)
    try countReceived(head.length)
    let open = try openSlot(head)
    try charge(budget.cost(ofFrame: head.length), to: open)
    guard let slot = open else { return }
    guard streams[slot]?.hasResponse == true else { return reset(slot, .protocolError) }  // no head before it
    if unsafe !data.isEmpty {
      unsafe responses[slot].append(data, upTo: settings.bodyBytesMax)
      streams[slot]?.bodyBytes += data.count
    }
    let window = Int(settings.streamWindowBytes)
    let received = (streams[slot]?.received ?? 0) + head.length
    guard received <= window else { return reset(slot, .flowControlError) }
    if head.has(HTTP2FrameFlags.endsStream) { return complete(slot) }
    if responses[slot].isTruncated { return cutOff(slot) }
    streams[slot]?.received = received
    if received * 2 > window {
      output.appendWindowUpdate(head.stream, received)
      streams[slot]?.received = 0
    }
  }

  /// The window of the whole connection.
  private mutating func countReceived(_ count: Int) throws(HTTP2Error) {
    let window = max(Int(settings.connectionWindowBytes), Self.windowBytes)
    received += count
    guard received <= window else { throw broken(.flowControlError, "more bytes than the connection's window") }
    if received * 2 > window {
      output.appendWindowUpdate(0, received)
      received = 0
    }
  }

  private mutating func handleHeaders(_ head: HTTP2FrameHead, _ payload: UnsafeRawBufferPointer) throws(HTTP2Error) {
    var block = try unsafe unpadded(head, payload)
    if head.has(HTTP2FrameFlags.hasPriority) {
      guard block.count >= 5 else { throw broken(.frameSizeError, "HEADERS without the priority it has") }
      unsafe block = UnsafeRawBufferPointer(rebasing: block[5...])
    }
    if head.has(HTTP2FrameFlags.endsHeaders) { return try unsafe handleBlock(head, block) }
    _ = try openSlot(head)
    unsafe fragments = (head, [UInt8](block))
  }

  private mutating func handleContinuation(_ head: HTTP2FrameHead, _ payload: UnsafeRawBufferPointer) throws(HTTP2Error)
  {
    guard var under = fragments else { throw broken(.protocolError, "CONTINUATION of nothing") }
    fragments = nil
    unsafe under.block.append(contentsOf: payload)
    guard under.block.count <= budget.limits.headerBlockBytesMax else {
      throw broken(.enhanceYourCalm, "an endless header block")
    }
    guard head.has(HTTP2FrameFlags.endsHeaders) else {
      fragments = under
      return
    }
    var failure: HTTP2Error?
    unsafe under.block.withUnsafeBytes { block in
      do throws(HTTP2Error) { try unsafe handleBlock(under.head, block) } catch { failure = error }
    }
    if let failure { throw failure }
  }

  /// Handles a whole header block: the head of the answer, an interim head (1xx), or trailers.
  private mutating func handleBlock(_ head: HTTP2FrameHead, _ block: UnsafeRawBufferPointer) throws(HTTP2Error) {
    let open = try openSlot(head)
    try charge(budget.cost(ofFrame: block.count), to: open)
    guard let slot = open, streams[slot]?.hasResponse == false else {
      // The block is not used, but must be decoded to keep the table in step.
      try unsafe decode(block, of: open) { _, _ in }
      guard let slot = open else { return }
      return head.has(HTTP2FrameFlags.endsStream) ? complete(slot) : reset(slot, .protocolError)
    }
    var message = newMessage()
    var hasRoom = true
    var bytes = 0
    let limits = budget.limits
    try unsafe decode(block, of: open) { name, value in
      bytes += name.count + value.count + HPACK.entryOverhead
      hasRoom = hasRoom && bytes <= limits.headerListBytesMax && message.headers.count < limits.headerFieldsMax
      if hasRoom { unsafe message.headers.add(name: name, value: value) }
    }
    guard hasRoom else { return reset(slot, .enhanceYourCalm) }
    guard message.headers.isAnswerHead else { return reset(slot, .protocolError) }
    let ends = head.has(HTTP2FrameFlags.endsStream)
    switch message.status {
    case 101: reset(slot, .protocolError)  // HTTP/2 has no upgrades (RFC 9113 §8.6)
    case 200...999:
      if ends {
        finish(slot, consume message)
      } else {
        keepResponse(slot, consume message)
      }
    case 100...199 where !ends: recycle(consume message)
    default: reset(slot, .protocolError)
    }
  }

  private mutating func decode(
    _ block: UnsafeRawBufferPointer, of slot: Int?,
    field: (_ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>) -> Void
  ) throws(HTTP2Error) {
    switch unsafe decoder.decode(block, listBytesMax: budget.limits.headerListBytesDecodedMax, field: field) {
    case .decoded(let listBytes): try charge(listBytes / budget.limits.bytesPerCredit, to: slot)
    case .malformed: throw broken(.compressionError, "a header block cannot be decoded")
    case .tooLong: throw broken(.enhanceYourCalm, "an endless header list")
    }
  }

  private mutating func handleReset(_ head: HTTP2FrameHead, _ payload: UnsafeRawBufferPointer) throws(HTTP2Error) {
    guard payload.count == 4 else { throw broken(.frameSizeError, "RST_STREAM of \(head.length) bytes") }
    guard let slot = try openSlot(head) else { return }
    closeUnanswered(slot, HTTP2ErrorCode(rawValue: unsafe number(payload, at: 0)))
  }

  private mutating func handleSettings(_ head: HTTP2FrameHead, _ payload: UnsafeRawBufferPointer) throws(HTTP2Error) {
    guard head.stream == 0 else { throw broken(.protocolError, "SETTINGS of a stream") }
    if head.has(HTTP2FrameFlags.acknowledges) {
      if head.length != 0 { throw broken(.frameSizeError, "SETTINGS that acknowledge and set") }
      return
    }
    guard head.length % 6 == 0 else { throw broken(.frameSizeError, "SETTINGS of \(head.length) bytes") }
    var window: Int?
    for place in stride(from: 0, to: head.length, by: 6) {
      let value = unsafe number(payload, at: place + 2)
      switch unsafe UInt16(payload[place]) << 8 | UInt16(payload[place + 1]) {
      case HTTP2Setting.headerTableSize: limitTable(to: value)
      case HTTP2Setting.enablePush:
        if value != 0 { throw broken(.protocolError, "a server that wants to be pushed to") }
      case HTTP2Setting.streamsMax: limitStreams(to: value)
      case HTTP2Setting.streamWindow:
        guard value <= UInt32(Int32.max) else { throw windowTooLarge() }
        window = Int(value)
      case HTTP2Setting.frameSize:
        // It is more than we ever send, so it has no effect.
        guard 16_384...16_777_215 ~= value else { throw broken(.protocolError, "SETTINGS_MAX_FRAME_SIZE \(value)") }
      default: break
      }
    }
    // Applied once, because it goes over every stream.
    if let window, !setStreamWindow(window) { throw windowTooLarge() }
    try countAcknowledgement()
    output.appendFrameHead(length: 0, HTTP2FrameType.settings, flags: HTTP2FrameFlags.acknowledges)
    hasPeerSettings = true
    events.append(.settings)
  }

  private mutating func handlePing(_ head: HTTP2FrameHead, _ payload: UnsafeRawBufferPointer) throws(HTTP2Error) {
    guard payload.count == 8 else { throw broken(.frameSizeError, "PING of \(head.length) bytes") }
    guard head.stream == 0 else { throw broken(.protocolError, "PING of a stream") }
    let number = unsafe payload.loadUnaligned(as: UInt64.self)
    if head.has(HTTP2FrameFlags.acknowledges) {
      events.append(.pong(number))
    } else {
      try countAcknowledgement()
      output.appendPing(number, acknowledges: true)
    }
  }

  private mutating func countAcknowledgement() throws(HTTP2Error) {
    acknowledgements += 1
    guard acknowledgements > budget.limits.acknowledgementsMax else { return }
    throw broken(.enhanceYourCalm, "the peer asks and does not read")
  }

  private mutating func handleGoAway(_ head: HTTP2FrameHead, _ payload: UnsafeRawBufferPointer) throws(HTTP2Error) {
    guard payload.count >= 8 else { throw broken(.frameSizeError, "GOAWAY of \(head.length) bytes") }
    guard head.stream == 0 else { throw broken(.protocolError, "GOAWAY of a stream") }
    let last = Int32(truncatingIfNeeded: unsafe number(payload, at: 0) & 0x7FFF_FFFF)
    let code = HTTP2ErrorCode(rawValue: unsafe number(payload, at: 4))
    let debugData = unsafe [UInt8](payload[8...].prefix(budget.limits.debugDataBytesMax))
    lastStream = min(last, lastStream ?? last)
    events.append(.goAway(lastStream: last, code, debugData: debugData))
    refuse(above: last)
  }

  private mutating func handleWindowUpdate(_ head: HTTP2FrameHead, _ payload: UnsafeRawBufferPointer) throws(HTTP2Error)
  {
    guard payload.count == 4 else { throw broken(.frameSizeError, "WINDOW_UPDATE of \(head.length) bytes") }
    let increment = Int(unsafe number(payload, at: 0) & 0x7FFF_FFFF)
    if head.stream == 0 {
      guard increment > 0 else { throw broken(.protocolError, "WINDOW_UPDATE of nothing") }
      guard widen(nil, by: increment) else {
        throw broken(.flowControlError, "WINDOW_UPDATE beyond the largest window")
      }
    } else if let slot = try openSlot(head) {
      guard increment > 0 else { return reset(slot, .protocolError) }
      if !widen(slot, by: increment) { reset(slot, .flowControlError) }
    }
  }

  // MARK: - Ends

  /// The answer of a stream is complete.
  private mutating func complete(_ slot: Int) {
    finish(slot, removeResponse(slot))
  }

  private mutating func finish(_ slot: Int, _ message: consuming HTTP2Message) {
    guard let stream = streams[slot] else { return }
    guard message.isTruncated || message.hasBody(of: stream.bodyBytes) else { return reset(slot, .protocolError) }
    // The answer came before the whole request was sent, so the rest is not sent (RFC 9113 §8.1).
    if stream.unsent > 0 { output.appendReset(stream.id, .cancel) }
    close(slot, .noError, response: message)
  }

  /// The body is longer than the limit. The status is enough, so the stream ends without the rest.
  private mutating func cutOff(_ slot: Int) {
    guard let id = streams[slot]?.id else { return }
    output.appendReset(id, .cancel)
    close(slot, .noError, response: removeResponse(slot))
  }

  /// Ends a stream after a stream error.
  private mutating func reset(_ slot: Int, _ code: HTTP2ErrorCode) {
    if let id = streams[slot]?.id { output.appendReset(id, code) }
    closeUnanswered(slot, code)
  }

  /// The peer ended a stream without an answer, or caused us to end it. No peer acts on a request whose end it has not seen, so a
  /// request that flow control held back counts as refused, whatever the error code.
  private mutating func closeUnanswered(_ slot: Int, _ code: HTTP2ErrorCode) {
    close(slot, (streams[slot]?.unsent ?? 0) > 0 ? .refusedStream : code)
  }

  /// Ends the connection. Returns the error to throw.
  private mutating func broken(_ code: HTTP2ErrorCode, _ what: String) -> HTTP2Error {
    isBroken = true
    output.appendGoAway(code)
    return HTTP2Error("the peer broke the HTTP/2 protocol: \(what)")
  }

  private mutating func windowTooLarge() -> HTTP2Error {
    broken(.flowControlError, "SETTINGS_INITIAL_WINDOW_SIZE is too large")
  }

  // MARK: - Parts of frames

  /// The slot of a frame's stream; nil for a stream that has ended, whose last frames may still come.
  private mutating func openSlot(_ head: HTTP2FrameHead) throws(HTTP2Error) -> Int? {
    switch place(of: head.stream) {
    case .open(let slot): return slot
    case .closed: return nil
    case .idle: throw broken(.protocolError, "a frame of a stream that never was")
    }
  }

  private mutating func unpadded(
    _ head: HTTP2FrameHead, _ payload: UnsafeRawBufferPointer
  ) throws(HTTP2Error) -> UnsafeRawBufferPointer {
    guard head.has(HTTP2FrameFlags.isPadded) else { return unsafe payload }
    guard let padding = unsafe payload.first, payload.count > Int(padding) else {
      throw broken(.protocolError, "more padding than there is frame")
    }
    return unsafe UnsafeRawBufferPointer(rebasing: payload[1..<(payload.count - Int(padding))])
  }

  private func number(_ payload: UnsafeRawBufferPointer, at place: Int) -> UInt32 {
    unsafe UInt32(bigEndian: payload.loadUnaligned(fromByteOffset: place, as: UInt32.self))
  }
}

extension HTTP2Message {
  /// Whether the body has the length that its head gives, if any (RFC 9113 §8.1.1).
  fileprivate func hasBody(of count: Int) -> Bool {
    guard let promised = headers["content-length"] else { return true }
    var number = 0
    for digit in promised {
      guard 0x30...0x39 ~= digit, number <= count else { return false }
      number = number * 10 + Int(digit - 0x30)
    }
    return !promised.isEmpty && number == count
  }

  /// Appends to the body, up to the limit.
  fileprivate mutating func append(_ data: UnsafeRawBufferPointer, upTo limit: Int) {
    let room = max(limit - body.count, 0)
    if data.count > room { isTruncated = true }
    unsafe body.append(contentsOf: data.prefix(room))
  }
}

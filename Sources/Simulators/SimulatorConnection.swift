// A client's connection: TLS, an HTTP/2 session, and the provider's rules for each request.

internal import Runtime

/// Confined to its core's loop.
final class SimulatorConnection: TLSStreamDelegate {
  /// Maximum size of a request body in bytes: a hundred Expo messages, and enough more to detect too many.
  private static let bodyBytesMax = 1024 * 1024
  /// After GOAWAY, the client has this long to close the connection itself.
  private static let farewellDelay = Nanoseconds.seconds(1)

  private unowned let core: SimulatorCore
  /// The number of the connection on its listener, from 1.
  private let number: Int
  private let stream: TLSStream
  private let session: HTTP2ServerSession
  private var memory = ConnectionMemory()
  private var requests: [HTTP2Request] = []
  private var headers = HTTP2HeaderBlock()
  private var hasFullStreams: Bool
  private var isGoingAway = false
  private var isFinishing = false
  /// Whether requests are read but never answered.
  private var isDeaf = false
  /// The highest stream that was processed, and the stream above which none will be processed.
  private var highestStream: Int32 = 0
  private var lastStream = Int32.max

  /// Takes over an accepted socket. Nil if TLS fails, which affects only this client.
  init?(_ socket: FileDescriptor, number: Int, tls: TLSContext, core: SimulatorCore) {
    guard let stream = try? TLSStream(socket, context: tls, loop: core.loop) else { return nil }
    self.core = core
    self.number = number
    self.stream = stream
    var settings = HTTP2SessionSettings()
    settings.streamsMax = core.options.streamsMaxBeforeAuthorisation ?? core.streamsMax
    settings.bodyBytesMax = Self.bodyBytesMax
    session = HTTP2ServerSession(settings: settings)
    hasFullStreams = core.options.streamsMaxBeforeAuthorisation == nil
    stream.delegate = self
  }

  func start() { stream.start() }

  /// Closes the TCP connection without a GOAWAY.
  func close() { stream.close() }

  /// Sends GOAWAY; open streams are still answered.
  func goAway(reason: String) {
    guard !isGoingAway else { return }
    isGoingAway = true
    session.goAway(debugData: Array(reason.utf8))
    flush()
  }

  /// Sends the core's stream limit to the client, unless another limit applies to it now.
  func limitStreams() {
    guard hasFullStreams else { return }
    session.limitStreams(to: core.streamsMax)
    flush()
  }

  /// Sends GOAWAY and closes.
  func sayFarewell() {
    if stream.isOpen { goAway(reason: "") }
    stream.close()
  }

  // MARK: - TLSStreamDelegate

  func streamDidOpen(_ stream: TLSStream) {
    guard stream.negotiatedProtocol == "h2" else { return end() }
    flush()
  }

  func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer) {
    do throws(HTTP2Error) {
      try unsafe session.receive(bytes)
    } catch {
      flush()  // nghttp2 has queued a GOAWAY with the reason
      end()
    }
  }

  func streamDidProgress(_ stream: TLSStream) {
    session.drainRequests(into: &requests)
    var hasAnswered = false
    for index in requests.indices {
      var message = HTTP2Message()
      swap(&message, &requests[index].message)  // takes sole ownership, so that its memory is reused
      answer(requests[index].stream, message)
      session.recycle(message)
      hasAnswered = true
      if stream.isClosed { break }
    }
    requests.removeAll(keepingCapacity: true)
    if hasAnswered { core.didAnswer() }
    flush()
  }

  func stream(_ stream: TLSStream, didCloseWith error: TLSError?) {
    core.remove(self)
  }

  // MARK: - Answers

  private func answer(_ id: Int32, _ message: HTTP2Message) {
    if isDeaf { return }
    guard id <= lastStream else { return core.didDrop(on: number) }
    var request = SimulatedRequest(headers: message.headers, body: message.body)
    request.connection = number
    request.stream = id
    let answer = core.answer(request, on: &memory)
    if answer.isAuthorised, !hasFullStreams {
      hasFullStreams = true
      session.limitStreams(to: core.streamsMax)
    }
    if answer.delivery == .cutOff { return cutOff(id) }
    if answer.delivery == .deafen { isDeaf = true }
    highestStream = max(highestStream, id)
    guard answer.delay > .zero else { return deliver(answer, to: id) }
    core.loop.schedule(at: core.loop.now + answer.delay) { [weak self] in
      guard let self, !self.stream.isClosed else { return }
      self.deliver(answer, to: id)
      self.flush()
    }
  }

  private func deliver(_ answer: SimulatedAnswer, to id: Int32) {
    if let reason = answer.goAwayReason, !isGoingAway {
      isGoingAway = true
      session.goAway(debugData: Array(reason.utf8))
    }
    switch answer.delivery {
    case .answer: respond(answer, to: id)
    case .never, .deafen: break
    case .reset: session.reset(id, .internalError)
    case .refuse, .cutOff: session.reset(id, .refusedStream)
    case .close: end()
    }
  }

  /// Ignores all streams that are later than the last one processed.
  private func cutOff(_ id: Int32) {
    guard !isGoingAway, id > highestStream else { return session.reset(id, .refusedStream) }
    isGoingAway = true
    lastStream = highestStream
    core.didCutOff(number, lastStream: lastStream)
    core.didDrop(on: number)
    session.goAway(lastStream: lastStream)
  }

  private func respond(_ answer: SimulatedAnswer, to id: Int32) {
    headers.removeAll()
    headers.add(":status", Int64(answer.status))
    headers.add("date", core.dateText())
    if !answer.apnsID.isEmpty { headers.add("apns-id", answer.apnsID, isIndexed: false) }
    if !answer.location.isEmpty { headers.add("location", answer.location, isIndexed: false) }
    if !answer.wnsStatus.isEmpty { headers.add("x-wns-status", answer.wnsStatus) }
    if answer.contentType != .none { headers.add("content-type", answer.contentType.rawValue) }
    if let seconds = answer.retryAfter { headers.add("retry-after", Int64(seconds)) }
    session.respond(to: id, headers, body: answer.body)
  }

  private func flush() {
    guard stream.isOpen else { return }
    do throws(HTTP2Error) {
      try session.send(into: &stream.output, upTo: .max)
    } catch {
      return end()
    }
    stream.flush()
    guard session.isFinished, !isFinishing else { return }
    isFinishing = true
    // Closing at once could overtake the last frames: if the client still sends data, the close becomes a reset.
    core.loop.schedule(at: core.loop.now + Self.farewellDelay) { [weak self] in self?.end() }
  }

  private func end() {
    guard !stream.isClosed else { return }
    stream.close()
    core.remove(self)
  }
}

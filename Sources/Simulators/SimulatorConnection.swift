// One client's connection: TLS below, an HTTP/2 session above, and the rules asked for each request.

internal import Runtime

/// Confined to its core's loop.
final class SimulatorConnection: TLSStreamDelegate {
  /// Bytes a request body may have: a hundred Expo messages, and some more so that too many can be told.
  private static let bodyBytesMax = 1024 * 1024
  /// After GOAWAY the client is given this long to hang up first.
  private static let farewellDelay = Nanoseconds.seconds(1)

  private unowned let core: SimulatorCore
  private let stream: TLSStream
  private let session: HTTP2Session
  private var memory = ConnectionMemory()
  private var events: [HTTP2Event] = []
  private var headers = HTTP2HeaderBlock()
  private var hasFullStreams: Bool
  private var isGoingAway = false
  private var isFinishing = false

  /// Takes an accepted socket over; nil when TLS refuses, which concerns this client only.
  init?(_ socket: FileDescriptor, tls: TLSContext, core: SimulatorCore) {
    guard let stream = try? TLSStream(socket, context: tls, loop: core.loop) else { return nil }
    self.core = core
    self.stream = stream
    var settings = HTTP2SessionSettings()
    settings.streamsMax = core.options.streamsMaxBeforeAuthorisation ?? core.options.streamsMax
    settings.bodyBytesMax = Self.bodyBytesMax
    session = HTTP2Session(.server, settings: settings)
    hasFullStreams = core.options.streamsMaxBeforeAuthorisation == nil
    stream.delegate = self
  }

  func start() { stream.start() }

  /// Closes without a word.
  func close() { stream.close() }

  /// Says GOAWAY; the streams that are open are still answered.
  func goAway(reason: String) {
    guard !isGoingAway else { return }
    isGoingAway = true
    session.goAway(debugData: Array(reason.utf8))
    flush()
  }

  /// Says GOAWAY and closes.
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
      flush()  // nghttp2 has a GOAWAY ready that says why
      end()
    }
  }

  func streamDidProgress(_ stream: TLSStream) {
    session.takeEvents(into: &events)
    var hasAnswered = false
    for event in events {
      guard case .request(let id, let message) = event else { continue }
      answer(id, message)
      hasAnswered = true
      if stream.isClosed { break }
    }
    events.removeAll(keepingCapacity: true)
    if hasAnswered { core.didAnswer() }
    flush()
  }

  func stream(_ stream: TLSStream, didCloseWith error: TLSError?) {
    core.remove(self)
  }

  // MARK: - Answers

  private func answer(_ id: Int32, _ message: HTTP2Message) {
    let answer = core.answer(SimulatedRequest(headers: message.headers, body: message.body), on: &memory)
    if answer.isAuthorised, !hasFullStreams {
      hasFullStreams = true
      session.limitStreams(to: core.options.streamsMax)
    }
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
    case .never: break
    case .reset: session.reset(id, .internalError)
    case .refuse: session.reset(id, .refusedStream)
    case .close: end()
    }
  }

  private func respond(_ answer: SimulatedAnswer, to id: Int32) {
    headers.removeAll()
    headers.add(":status", Int64(answer.status))
    if !answer.apnsID.isEmpty { headers.add("apns-id", answer.apnsID, isIndexed: false) }
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
    // Closing at once could overtake the last frames: data the client still sends would turn the end into a reset.
    core.loop.schedule(at: core.loop.now + Self.farewellDelay) { [weak self] in self?.end() }
  }

  private func end() {
    guard !stream.isClosed else { return }
    stream.close()
    core.remove(self)
  }
}

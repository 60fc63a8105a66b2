// TLS in a channel of SwiftNIO: decrypts what comes in and encrypts what goes out. The TLS itself is Runtime's TLSSession.
//
// States: handshaking → open → closing → closed. Each direction of an open connection ends on its own: the client's
// with its close_notify or the end of its bytes, ours with our close_notify (`close(mode: .output)`). A full close sends
// ours, and waits for the client's for a moment. After an error the connection is closed at once.

internal import NIOCore
internal import Runtime

/// A failed handshake. The handler's other errors, of open connections, are `TLSError`s.
struct TLSHandshakeFailure: Error {
  let cause: TLSError
}

/// The first handler of a connection. Reports at most one error of TLS, and then closes the connection.
final class TLSServerHandler: ChannelDuplexHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer
  typealias OutboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private enum State {
    case handshaking
    case open
    /// Our close_notify is sent; `timer` ends the wait for the client's.
    case closing(timer: Scheduled<Void>)
    case closed
  }

  /// The time that a client has to answer our close_notify.
  static let closing = TimeAmount.seconds(1)
  /// More than what TLS adds to a record of 16 KiB: header, nonce, content type and tag.
  private static let recordOverhead = 32

  private let session: TLSSession
  private var state = State.handshaking
  /// Whether the client has ended its direction.
  private var isInputEnded = false
  /// Whether our direction has ended, or will with the handshake.
  private var isOutputEnded = false
  /// Whether the system has taken all that we sent before our direction ended.
  private var isOutputSent = false
  /// What was written during the handshake.
  private var waiting: [(bytes: ByteBuffer, promise: EventLoopPromise<Void>?)] = []
  /// Whether there was a flush during the handshake.
  private var isFlushWaiting = false
  /// The promise of a `close(mode: .output)` during the handshake.
  private var outputEndPromise: EventLoopPromise<Void>?
  /// Whoever waits for the end of the connection.
  private var closePromises: [EventLoopPromise<Void>] = []
  /// Whether something was passed on since the last `channelReadComplete`.
  private var hasPassedOn = false

  init(_ session: TLSSession) {
    self.session = session
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    for promise in enterClosed() { promise.fail(ChannelError.ioOnClosedChannel) }
  }

  func channelInactive(context: ChannelHandlerContext) {
    if !isInputEnded { inputBroke(context) }
    for promise in enterClosed() { promise.succeed() }
    context.fireChannelInactive()
  }

  // MARK: - What comes in

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    if case .closed = state { return }
    let bytes = unwrapInboundIn(data)
    var plaintext = context.channel.allocator.buffer(capacity: bytes.readableBytes)
    var failure: TLSError?
    do throws(TLSError) {
      try session.receive(bytes.readableBytesSpan) { plaintext.writeBytes($0) }
    } catch {
      failure = error
    }
    sendOutput(context)
    if case .handshaking = state, session.isOpen { open(context) }
    if case .open = state, plaintext.readableBytes > 0 {
      hasPassedOn = true
      context.fireChannelRead(wrapInboundOut(plaintext))
    }
    if session.hasPeerEnded { inputEnded(context) }
    if let failure { fail(failure, context) }
  }

  func channelReadComplete(context: ChannelHandlerContext) {
    if hasPassedOn {
      hasPassedOn = false
      context.fireChannelReadComplete()
    } else if case .closed = state {
    } else if (try? context.channel.syncOptions?.getOption(.autoRead)) == false {
      // Whoever asked for bytes got none, and will not ask again.
      context.read()
    }
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    guard event as? ChannelEvent == .inputClosed else { return context.fireUserInboundEventTriggered(event) }
    if !isInputEnded { inputBroke(context) }
    inputEnded(context)
  }

  private func open(_ context: ChannelHandlerContext) {
    state = .open
    let (written, promise) = (waiting, outputEndPromise)
    (waiting, outputEndPromise) = ([], nil)
    for (bytes, promise) in written { encrypt(bytes, promise, context) }
    if isFlushWaiting { context.flush() }
    if isOutputEnded { endOutput(context, promise) }
  }

  /// The bytes have ended without a close_notify, so some may be missing.
  private func inputBroke(_ context: ChannelHandlerContext) {
    switch state {
    case .handshaking: fail(TLSError(.connection, "the client closed the connection during the TLS handshake"), context)
    case .open: context.fireErrorCaught(TLSError(.connection, "the client closed the connection without ending TLS"))
    case .closing, .closed: break
    }
  }

  private func inputEnded(_ context: ChannelHandlerContext) {
    guard !isInputEnded else { return }
    isInputEnded = true
    switch state {
    case .open where isOutputSent: closeNow(context)
    case .open: context.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
    case .closing: closeNow(context)
    case .handshaking, .closed: break
    }
  }

  // MARK: - What goes out

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    switch state {
    case .closing, .closed: promise?.fail(ChannelError.ioOnClosedChannel)
    case .handshaking where isOutputEnded, .open where isOutputEnded: promise?.fail(ChannelError.outputClosed)
    case .handshaking: waiting.append((unwrapOutboundIn(data), promise))
    case .open: encrypt(unwrapOutboundIn(data), promise, context)
    }
  }

  func flush(context: ChannelHandlerContext) {
    if case .handshaking = state { isFlushWaiting = true }
    context.flush()
  }

  private func encrypt(_ bytes: ByteBuffer, _ promise: EventLoopPromise<Void>?, _ context: ChannelHandlerContext) {
    let records = bytes.readableBytes / 16_384 + 1
    var ciphertext = context.channel.allocator.buffer(
      capacity: bytes.readableBytes + records * Self.recordOverhead)
    do throws(TLSError) {
      try session.send(bytes.readableBytesSpan) { ciphertext.writeBytes($0) }
    } catch {
      promise?.fail(error)
      return fail(error, context)
    }
    context.write(wrapOutboundOut(ciphertext), promise: promise)
  }

  /// Sends what the session itself has to say.
  private func sendOutput(_ context: ChannelHandlerContext) {
    session.takeOutput { bytes in
      var buffer = context.channel.allocator.buffer(capacity: bytes.byteCount)
      buffer.writeBytes(bytes)
      context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
    }
  }

  private func sayEnd(_ context: ChannelHandlerContext) {
    isOutputEnded = true
    session.end()
    sendOutput(context)
  }

  /// Ends our direction when all that was written is sent.
  private func endOutput(_ context: ChannelHandlerContext, _ promise: EventLoopPromise<Void>?) {
    sayEnd(context)
    let sent = context.eventLoop.makePromise(of: Void.self)
    sent.futureResult.assumeIsolated().whenComplete { [self] _ in
      isOutputSent = true
      if isInputEnded { closeNow(context) }
    }
    sent.futureResult.cascade(to: promise)
    context.close(mode: .output, promise: sent)
  }

  // MARK: - Closing

  func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
    switch (mode, state) {
    case (.input, _): promise?.fail(ChannelError.operationUnsupported)
    case (_, .closed): context.close(mode: mode, promise: promise)
    case (.output, .handshaking) where !isOutputEnded:
      isOutputEnded = true
      outputEndPromise = promise
    case (.output, .open) where !isOutputEnded: endOutput(context, promise)
    case (.output, _): promise?.fail(ChannelError.outputClosed)
    case (.all, _): closeAll(context, promise)
    }
  }

  private func closeAll(_ context: ChannelHandlerContext, _ promise: EventLoopPromise<Void>?) {
    if let promise { closePromises.append(promise) }
    switch state {
    case .closing, .closed: break
    case .handshaking: closeNow(context)
    case .open:
      if !isOutputEnded { sayEnd(context) }
      guard !isInputEnded else { return closeNow(context) }
      let timer = context.eventLoop.assumeIsolated().scheduleTask(in: Self.closing) { [self] in closeNow(context) }
      state = .closing(timer: timer)
      context.read()
    }
  }

  private func fail(_ error: TLSError, _ context: ChannelHandlerContext) {
    let old = state
    state = .closed
    switch old {
    case .handshaking: context.fireErrorCaught(TLSHandshakeFailure(cause: error))
    case .open: context.fireErrorCaught(error)
    case .closing(let timer): timer.cancel()
    case .closed: return
    }
    closeNow(context)
  }

  private func closeNow(_ context: ChannelHandlerContext) {
    let ended = context.eventLoop.makePromise(of: Void.self)
    for promise in enterClosed() { ended.futureResult.cascade(to: promise) }
    context.close(promise: ended)
  }

  /// Nothing more happens after this. Writes that still wait for the handshake fail.
  ///
  /// - Returns: who waits for the end of the connection.
  private func enterClosed() -> [EventLoopPromise<Void>] {
    if case .closing(let timer) = state { timer.cancel() }
    state = .closed
    let (written, outputEnd, ended) = (waiting, outputEndPromise, closePromises)
    (waiting, outputEndPromise, closePromises) = ([], nil, [])
    for (_, promise) in written { promise?.fail(ChannelError.ioOnClosedChannel) }
    outputEnd?.fail(ChannelError.ioOnClosedChannel)
    return ended
  }
}

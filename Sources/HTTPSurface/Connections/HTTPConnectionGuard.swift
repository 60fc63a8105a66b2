// The channel handler that enforces the limits of one client connection, and refuses requests before they reach the
// server.

internal import HTTPTypes
internal import HummingbirdCore
internal import NIOCore
internal import NIOHTTP1
internal import NIOHTTPTypes
internal import Settings

/// Stands between the HTTP codec and the server in the channel's pipeline.
final class HTTPConnectionGuard: ChannelDuplexHandler, RemovableChannelHandler {
  typealias InboundIn = HTTPRequestPart
  typealias InboundOut = HTTPRequestPart
  typealias OutboundIn = HTTPResponsePart
  typealias OutboundOut = HTTPResponsePart

  struct Limits: Sendable {
    var bodyMaxBytes: Int
    var request: TimeAmount
    var idle = TimeAmount.seconds(60)
    var unread = TimeAmount.seconds(30)
    var linger = TimeAmount.seconds(2)
  }

  /// Runs before the codec and tells the guard that bytes have arrived.
  private final class ArrivalHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      context.fireUserInboundEventTriggered(BytesArrived())
      context.fireChannelRead(data)
    }
  }

  private struct BytesArrived {}

  /// An event that the request's responder sends when the request has shown a good key, or needs none. Until its
  /// answer, the connection is not evicted.
  struct LetIn: Sendable {
    static func tell(_ channel: any Channel) { channel.triggerUserOutboundEvent(LetIn(), promise: nil) }
  }

  private static let upgrade = HTTPField.Name("Upgrade")!

  private let limits: Limits
  private let connections: HTTPConnectionCount
  private let operationAtPath: (String) -> APIOperation?
  private var state: HTTPConnectionState
  private var admission: HTTPConnectionCount.Admission?
  private var timer = HTTPConnectionState.Timer.none
  private var scheduled: Scheduled<Void>?
  /// Whether a request has arrived. Before the first one, the connection has the time limit of a request; after that,
  /// that of `idle`.
  private var isUsed = false
  /// Whether the server has received something since the last `channelReadComplete`.
  private var hasPassedOn = false
  /// The state last reported to `connections`.
  private var isWorking = false
  /// Whether the request in progress has shown a good key.
  private var isLetIn = false
  private var isAnswerGood = false
  /// Whether the request in progress offers another protocol. The decoder reads nothing after such a request, so the
  /// connection is closed after its answer.
  private var isLast = false
  /// Whether the request in progress was answered without a good key while the listener is crowded. The connection is
  /// closed after the answer.
  private var isShed = false
  /// The path, with its query, of the request that is being read, or is refused.
  private var path: String?

  /// - Parameter operationAtPath: what a path of another push server is for: a refusal has that server's form.
  init(
    limits: Limits, connections: HTTPConnectionCount,
    operationAtPath: @escaping (String) -> APIOperation? = { _ in nil }
  ) {
    self.limits = limits
    self.connections = connections
    self.operationAtPath = operationAtPath
    state = HTTPConnectionState(bodyMaxBytes: limits.bodyMaxBytes)
  }

  // MARK: - The connection

  func handlerAdded(context: ChannelHandlerContext) {
    // With TLS, the bytes inside TLS count, so a handshake has the time limit of a first request.
    let tls = try? context.pipeline.syncOperations.handler(type: TLSFailureHandler.self)
    try? context.pipeline.syncOperations.addHandler(ArrivalHandler(), position: tls.map { .after($0) } ?? .first)
    if context.channel.isActive { open(context) }
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    close()
  }

  func channelActive(context: ChannelHandlerContext) {
    open(context)
    context.fireChannelActive()
  }

  func channelInactive(context: ChannelHandlerContext) {
    close()
    context.fireChannelInactive()
  }

  private func open(_ context: ChannelHandlerContext) {
    guard admission == nil else { return }
    let channel = context.channel
    let admission = connections.admit(IPAddress(context.remoteAddress).network) { channel.close(promise: nil) }
    self.admission = admission
    switch admission {
    case .served: rearm(context)
    case .refused: perform(state.refused(.tooManyConnections), context)
    case .dropped: context.close(promise: nil)
    }
  }

  private func close() {
    scheduled?.cancel()
    scheduled = nil
    if let admission { connections.leave(admission) }
    admission = nil
  }

  // MARK: - What comes in

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    guard event is BytesArrived else { return context.fireUserInboundEventTriggered(event) }
    state.bytesArrived()
    rearm(context)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    let action: HTTPConnectionState.Action
    switch unwrapInboundIn(data) {
    case .head(let head):
      isUsed = true
      isLast = isLast || head.headerFields[Self.upgrade] != nil
      if state.isReading { path = head.path }
      action = state.headArrived(length: head.headerFields[.contentLength].flatMap(Int.init))
      if action == .none, state.isReading, head.headerFields[.expect]?.lowercased() == "100-continue" {
        context.writeAndFlush(wrapOutboundOut(.head(HTTPResponse(status: .continue))), promise: nil)
      }
    case .body(let bytes): action = state.bodyArrived(bytes.readableBytes)
    case .end:
      if state.isReading { path = nil }
      state.endArrived()
      if case .served(let seat) = admission { connections.asks(seat) }
      action = .none
    }
    if state.isReading {
      hasPassedOn = true
      context.fireChannelRead(data)
    }
    perform(action, context)
  }

  func channelReadComplete(context: ChannelHandlerContext) {
    // If the server received something of this read, it must be told of the end, although the rest was dropped.
    if hasPassedOn || state.isReading { context.fireChannelReadComplete() }
    hasPassedOn = false
    // The server asks for no more bytes after a refusal, so the guard reads what is dropped.
    if !state.isReading, !state.isDeaf { context.read() }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    guard error is HTTPParserError || !(error is IOError || error is ChannelError) else {
      return context.fireErrorCaught(error)
    }
    let isOverflow = (error as? HTTPParserError) == .headerOverflow
    perform(state.refused(isOverflow ? .headersTooLarge : .malformed), context)
  }

  // MARK: - What goes out

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    guard !state.isLingering else {
      promise?.fail(ChannelError.outputClosed)
      return
    }
    let part = unwrapOutboundIn(data)
    guard case .head(var head) = part else {
      context.write(data, promise: promise)
      guard case .end = part else { return }
      perform(state.answerEnded(), context)
      settle()
      if isShed {
        context.flush()
        perform(state.shed(), context)
      } else if isLast {
        finish(context)
      }
      return
    }
    state.answerBegan()
    isAnswerGood = head.status.code < 400
    isShed = !isLetIn && connections.isCrowded
    if isLast || isShed { head.headerFields[.connection] = "close" }
    context.write(wrapOutboundOut(.head(head)), promise: promise)
  }

  func channelWritabilityChanged(context: ChannelHandlerContext) {
    state.writabilityChanged(isBlocked: !context.channel.isWritable)
    rearm(context)
    context.fireChannelWritabilityChanged()
  }

  func triggerUserOutboundEvent(context: ChannelHandlerContext, event: Any, promise: EventLoopPromise<Void>?) {
    guard event is LetIn else { return context.triggerUserOutboundEvent(event, promise: promise) }
    isLetIn = true
    reseat()
    promise?.succeed()
  }

  private func perform(_ action: HTTPConnectionState.Action, _ context: ChannelHandlerContext) {
    switch action {
    case .none: break
    case .refuse(let problem):
      let operation = path.flatMap { operationAtPath(String($0.prefix { $0 != "?" })) }
      var response = problem.response(of: operation).head
      response.headerFields[.connection] = "close"
      context.write(wrapOutboundOut(.head(response)), promise: nil)
      context.write(wrapOutboundOut(.body(ByteBuffer(bytes: problem.body(of: operation)))), promise: nil)
      context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
      finish(context)
    case .finish: finish(context)
    case .close: context.close(promise: nil)
    }
    rearm(context)
  }

  private func finish(_ context: ChannelHandlerContext) {
    context.flush()
    guard !state.isDeaf else { return context.close(promise: nil) }
    context.close(mode: .output, promise: nil)
    context.read()
  }

  // MARK: - Time and seat

  private func rearm(_ context: ChannelHandlerContext) {
    reseat()
    guard state.timer != timer, admission != nil else { return }
    timer = state.timer
    scheduled?.cancel()
    scheduled = duration.map { duration in
      context.eventLoop.assumeIsolated().scheduleTask(in: duration) { [self] in
        timer = .none
        perform(state.timerFired(), context)
      }
    }
  }

  private func reseat() {
    guard case .served(let seat) = admission, (isLetIn && state.isWorking) != isWorking else { return }
    isWorking.toggle()
    if isWorking { connections.works(seat) } else { connections.waits(seat) }
  }

  /// An answer has ended.
  private func settle() {
    let isGood = isLetIn || isAnswerGood
    isLetIn = false
    isWorking = false
    guard case .served(let seat) = admission else { return }
    if isGood { connections.waits(seat) } else { connections.isRefused(seat) }
  }

  private var duration: TimeAmount? {
    switch timer {
    case .none: nil
    case .request: limits.request
    case .idle: isUsed ? limits.idle : limits.request
    case .unread: limits.unread
    case .linger: limits.linger
    }
  }
}

// Keeps a listener open when the system cannot accept a connection.
//
// Without this handler, the first such error ends the listener: Hummingbird reads accepted connections as a sequence,
// and an error in the channel ends the sequence. NIO keeps the listening socket open and asks the system again at once,
// without end. So this handler stops the errors, and pauses the listener while descriptors or memory are missing.

internal import Logging
internal import NIOCore

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// The first handler in the channel of a listening socket.
final class HTTPListenerGuard: ChannelDuplexHandler {
  typealias InboundIn = any Channel
  typealias InboundOut = any Channel
  typealias OutboundIn = Never
  typealias OutboundOut = Never

  static let pause = TimeAmount.milliseconds(100)
  /// The minimum time between two log lines about connections that cannot be accepted.
  private static let quiet = TimeAmount.seconds(60)

  private let listener: String
  private let logger: Logger
  private var isPaused = false
  private var quietUntil = NIODeadline.uptimeNanoseconds(0)

  /// - Parameter listener: its configuration key, for the log.
  init(listener: String, logger: Logger) {
    self.listener = listener
    self.logger = logger
  }

  /// Adds a guard as the first handler of a listener's channel, and raises the number of connections accepted at a
  /// time.
  static func add(to channel: any Channel, listener: String, logger: Logger) async {
    try? await channel.eventLoop.submit {
      try channel.syncOptions?.setOption(.maxMessagesPerRead, value: UInt(HTTPConnectionCount.acceptedAtOnce))
      try channel.pipeline.syncOperations.addHandler(
        HTTPListenerGuard(listener: listener, logger: logger), position: .first)
    }.get()
  }

  func read(context: ChannelHandlerContext) {
    if !isPaused { context.read() }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    guard let code = (error as? IOError)?.errnoCode, let reason = Self.reason(code), !isPaused else { return }
    let now = context.eventLoop.now
    if now >= quietUntil {
      quietUntil = now + Self.quiet
      logger.error(
        "A listener cannot accept connections", metadata: ["listener": "\(listener)", "reason": "\(reason)"])
    }
    // After an error, a pending read stays registered with the system. So the channel must also be told to stop
    // reading.
    isPaused = true
    setAutoRead(context, false)
    context.eventLoop.assumeIsolated().scheduleTask(in: Self.pause) { [self] in
      isPaused = false
      setAutoRead(context, true)
    }
  }

  /// Why no connection can be accepted for a while; nil if the next one may succeed at once.
  private static func reason(_ code: CInt) -> String? {
    switch code {
    case EMFILE: "the process has reached its limit of open files"
    case ENFILE: "the system has reached its limit of open files"
    case ENOBUFS, ENOMEM: "the system is out of memory"
    default: nil
    }
  }

  private func setAutoRead(_ context: ChannelHandlerContext, _ isOn: Bool) {
    try? context.channel.syncOptions?.setOption(.autoRead, value: isOn)
  }
}

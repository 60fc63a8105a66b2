// Keeps a listener alive when the system cannot give it a connection.
//
// Without it the first such error ends the listener: Hummingbird reads accepted connections as a sequence, and an error in the
// channel ends the sequence. And NIO, which keeps the listening socket open, asks the system again at once, for ever. So errors go
// no further than this handler, and where descriptors or memory are missing the listener pauses.

internal import Logging
internal import NIOCore

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Stands first in the channel of a listening socket.
final class HTTPListenerGuard: ChannelDuplexHandler {
  typealias InboundIn = any Channel
  typealias InboundOut = any Channel
  typealias OutboundIn = Never
  typealias OutboundOut = Never

  static let pause = TimeAmount.milliseconds(100)
  /// The log says at most this often that connections are not to be had.
  private static let quiet = TimeAmount.seconds(60)

  private let listener: String
  private let logger: Logger
  private var isPaused = false
  private var quietUntil = NIODeadline.uptimeNanoseconds(0)

  /// - Parameter listener: the key of the configuration, for the log.
  init(listener: String, logger: Logger) {
    self.listener = listener
    self.logger = logger
  }

  /// Puts a guard before everything else in a listener's channel, and has it accept more than a few connections at a time.
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
    // A read that is pending stays registered with the system after an error, so that it alone is not enough to read no more.
    isPaused = true
    setAutoRead(context, false)
    context.eventLoop.assumeIsolated().scheduleTask(in: Self.pause) { [self] in
      isPaused = false
      setAutoRead(context, true)
    }
  }

  /// Why there is no connection for a while; nil: the next one may be there at once.
  private static func reason(_ code: CInt) -> String? {
    switch code {
    case EMFILE: "the process has as many files open as it may"
    case ENFILE: "the system has as many files open as it may"
    case ENOBUFS, ENOMEM: "the system is out of memory"
    default: nil
    }
  }

  private func setAutoRead(_ context: ChannelHandlerContext, _ isOn: Bool) {
    try? context.channel.syncOptions?.setOption(.autoRead, value: isOn)
  }
}

// Stops errors of TLS, so that they are not treated as malformed requests. Such a client cannot be answered.

internal import NIOCore
internal import NIOSSL
internal import Settings

/// Stands behind the TLS handler, which closes the connection after an error. If a client closes the connection without
/// ending TLS, that is not an error: every request states its length, so a truncated request is not taken for a
/// complete one.
final class TLSFailureHandler: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer

  private let failures: HandshakeFailures

  init(failures: HandshakeFailures) {
    self.failures = failures
  }

  /// The TLS handler reports a connection before it begins the handshake. If the connection's output is closed then
  /// (`close(mode: .output)`), the handler treats it as a connection without TLS, and a refusal would not be sent. So
  /// the event is passed on a moment later.
  func channelActive(context: ChannelHandlerContext) {
    let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
    context.eventLoop.execute {
      let context = bound.value
      if context.channel.isActive { context.fireChannelActive() }
    }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    guard
      error is NIOSSLError || error is BoringSSLError || error is NIOSSLExtraError || error is NIOSSLCloseTimedOutError
    else { return context.fireErrorCaught(error) }
    if case .handshakeFailed(let error)? = error as? NIOSSLError {
      failures.note(HandshakeFailures.Reason(error), of: IPAddress(context.remoteAddress))
    }
  }
}

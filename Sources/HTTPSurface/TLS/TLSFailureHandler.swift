// What goes wrong in TLS ends there: nothing of it is a malformed request, and there is nobody to answer.

internal import NIOCore
internal import NIOSSL
internal import Settings

/// Stands behind the TLS handler, which closes the connection by itself after what fails. A client that hangs up without TLS's
/// farewell is let go like any other: what it sent of a request has a length, so that none is taken for whole that is not.
final class TLSFailureHandler: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer

  private let failures: HandshakeFailures

  init(failures: HandshakeFailures) {
    self.failures = failures
  }

  /// The TLS handler tells of a connection before it has begun the handshake, and then takes our end of it (`close(mode: .output)`)
  /// for that of a connection without TLS. A refusal at once would not be heard, so that what follows is told a moment later.
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

// What goes wrong in TLS ends there: nothing of it is a malformed request, and there is nobody to answer.

internal import Logging
internal import NIOCore
internal import NIOSSL

/// Stands behind the TLS handler, which closes the connection by itself after what fails. A client that hangs up without TLS's
/// farewell is let go like any other: what it sent of a request has a length, so that none is taken for whole that is not.
final class TLSFailureHandler: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer

  private let logger: Logger

  init(logger: Logger) {
    self.logger = logger
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    guard
      error is NIOSSLError || error is BoringSSLError || error is NIOSSLExtraError || error is NIOSSLCloseTimedOutError
    else { return context.fireErrorCaught(error) }
    if case .handshakeFailed? = error as? NIOSSLError {
      logger.debug("A TLS handshake failed", metadata: ["reason": "\(error)"])
    }
  }
}

// Stops errors of TLS, so that they are not treated as malformed requests. Such a client cannot be answered.

internal import NIOCore
internal import Runtime
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

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    switch error {
    case let failure as TLSHandshakeFailure:
      failures.note(HandshakeFailures.Reason(failure.cause), of: IPAddress(context.remoteAddress))
    case is TLSError: break
    default: context.fireErrorCaught(error)
    }
  }
}

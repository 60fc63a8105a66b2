// HTTP/1.1 over TLS, with the certificate that is in use when a connection is opened.

internal import HummingbirdCore
internal import Logging
internal import NIOCore
internal import Runtime

/// Sets up the connections of a listener with TLS.
private struct EncryptedHTTP1Channel: ServerChildChannel {
  let base: HTTP1Channel
  let credentials: ListenerCredentials
  let logger: Logger

  func setup(channel: any Channel, logger _: Logger) -> EventLoopFuture<HTTP1Channel.Value> {
    channel.eventLoop.makeCompletedFuture {
      // These come first, so that a connection that is refused at once gets its refusal over TLS.
      try channel.pipeline.syncOperations.addHandlers([
        TLSServerHandler(try TLSSession(credentials.context)),
        TLSFailureHandler(failures: credentials.handshakeFailures),
      ])
    }.flatMap { base.setup(channel: channel, logger: logger) }
  }

  func handle(value: HTTP1Channel.Value, logger: Logger) async {
    await base.handle(value: value, logger: logger)
  }
}

extension HTTPServerBuilder {
  /// HTTP/1.1.
  ///
  /// - Parameter credentials: certificate and key for TLS; nil: clear text.
  static func http1(
    configuration: HTTP1Channel.Configuration, credentials: ListenerCredentials?, logger: Logger
  ) -> HTTPServerBuilder {
    guard let credentials else { return .http1(configuration: configuration) }
    return HTTPServerBuilder { responder in
      EncryptedHTTP1Channel(
        base: HTTP1Channel(responder: responder, configuration: configuration), credentials: credentials, logger: logger
      )
    }
  }
}

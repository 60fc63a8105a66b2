// The script of a scripted peer: a provider with valid answers, in which single steps are replaced.

import Runtime

/// The steps of one connection. Every step is called on the peer's loop; the defaults are those of a correct
/// provider.
public struct PeerScript: Sendable {
  /// How the peer accepts a connection.
  public enum Transport: Sendable {
    /// TLS with a certificate that the gateway trusts.
    case tls
    /// TLS with a certificate of an unknown CA.
    case strangersTLS
    /// TLS without an answer to ALPN: a client that allows it uses HTTP/1.1.
    case tlsWithoutALPN
    /// The socket without TLS, which the step reads, writes and closes.
    case socket(@Sendable (ScriptedPeer, FileDescriptor) -> Void)
  }

  public var transport = Transport.tls
  /// The script becomes active while the connection is open.
  public var onArm: @Sendable (ScriptedConnection) -> Void = { _ in }
  /// The TLS handshake of a new connection is complete.
  public var onOpen: @Sendable (ScriptedConnection) -> Void = { $0.send(RawFrame.settings()) }
  public var onSettings: @Sendable (ScriptedConnection) -> Void = {
    $0.send(RawFrame.frame(RawFrame.settings, flags: RawFrame.ack))
  }
  /// A PING has arrived, with these eight bytes.
  public var onPing: @Sendable (ScriptedConnection, [UInt8]) -> Void = {
    $0.send(RawFrame.frame(RawFrame.ping, flags: RawFrame.ack, $1))
  }
  /// A request has arrived whole.
  public var onRequest: @Sendable (ScriptedConnection, UInt32) -> Void = { $0.answer($1) }

  public init() {}
}

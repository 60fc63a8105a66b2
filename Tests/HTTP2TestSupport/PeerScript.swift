// What a scripted peer does: a provider that answers well, with single steps replaced.

import Runtime

/// The steps of one connection. Every step is called on the peer's loop; the default ones are those of an honest
/// provider.
public struct PeerScript: Sendable {
  /// What a connection meets first.
  public enum Transport: Sendable {
    /// TLS with a certificate the gateway believes.
    case tls
    /// TLS with a certificate of a CA nobody was told about.
    case strangersTLS
    /// TLS without an answer to ALPN: a client that allows it uses HTTP/1.1.
    case tlsWithoutALPN
    /// The bare socket, which is the step's to read, write and close.
    case socket(@Sendable (ScriptedPeer, FileDescriptor) -> Void)
  }

  public var transport = Transport.tls
  /// The peer turns to this script while the connection is open.
  public var onArm: @Sendable (ScriptedConnection) -> Void = { _ in }
  /// The TLS handshake of a new connection is complete.
  public var onOpen: @Sendable (ScriptedConnection) -> Void = { $0.send(RawFrame.settings()) }
  public var onSettings: @Sendable (ScriptedConnection) -> Void = {
    $0.send(RawFrame.frame(RawFrame.settings, flags: RawFrame.ack))
  }
  /// A PING came, with these eight bytes.
  public var onPing: @Sendable (ScriptedConnection, [UInt8]) -> Void = {
    $0.send(RawFrame.frame(RawFrame.ping, flags: RawFrame.ack, $1))
  }
  /// A request has come to its end.
  public var onRequest: @Sendable (ScriptedConnection, UInt32) -> Void = { $0.answer($1) }

  public init() {}
}

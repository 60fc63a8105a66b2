// Errors of TLS, with texts that an operator can act on.

internal import COpenSSL

/// A failed TLS set-up, handshake or connection. The text names the file or peer and the reason, never a secret.
public struct TLSError: Error, CustomStringConvertible, Sendable {
  public enum Code: Sendable {
    /// A certificate, key or CA file cannot be used.
    case configuration
    /// The server's certificate is not valid for the host, or the client's is not accepted.
    case verification
    /// The client sent no certificate, although one is required.
    case noCertificate
    /// The peer refused the handshake with an alert, usually because of our certificate.
    case refused
    /// The peers found no protocol in common (ALPN).
    case protocolNegotiation
    /// Another failure of the handshake.
    case handshake
    /// The connection ended without close_notify or with an error, or was never made.
    case connection
    /// The name of the host, or of its proxy, could not be resolved.
    case name
    /// The proxy made no tunnel.
    case proxy
  }

  public let code: Code
  public let description: String

  public init(_ code: Code, _ description: String) {
    self.code = code
    self.description = description
  }

  static func tooManyMessages(from peer: String) -> TLSError {
    TLSError(.connection, "\(peer) sends more TLS messages than any connection needs")
  }

  /// Reads OpenSSL's error queue of this thread. The oldest entry is the cause.
  static func queuedReason() -> String {
    let code = ERR_get_error()
    ERR_clear_error()
    guard code != 0, let reason = unsafe ERR_reason_error_string(code) else { return "unknown reason" }
    return unsafe String(cString: reason)
  }
}

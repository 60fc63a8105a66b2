// What can go wrong between a socket and readable plain text, said so that an operator can act on it.

internal import COpenSSL

/// A failed TLS set-up, handshake or connection. The text names the file or peer and the reason, never a secret.
public struct TLSError: Error, CustomStringConvertible, Sendable {
  public enum Code: Sendable {
    /// A certificate, key or CA file cannot be used.
    case configuration
    /// The peer's certificate does not prove that it is who we wanted to talk to.
    case verification
    /// The peers found no protocol in common (ALPN).
    case protocolNegotiation
    /// Anything else in a handshake.
    case handshake
    /// The connection ended without a TLS farewell, or with an error; or none came about.
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

  /// Takes OpenSSL's error queue of this thread apart; the oldest entry is the cause.
  static func queuedReason() -> String {
    let code = ERR_get_error()
    ERR_clear_error()
    guard code != 0, let reason = unsafe ERR_reason_error_string(code) else { return "unknown reason" }
    return unsafe String(cString: reason)
  }
}

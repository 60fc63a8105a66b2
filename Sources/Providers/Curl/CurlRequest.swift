// What goes into CurlClient and what comes out of it. Everything is a value; nothing is thrown.

public import Runtime

/// One HTTP request of the batched or rare kind: Expo, OAuth, webhooks.
public struct CurlRequest: Sendable {
  public enum Method: Sendable {
    case get
    case post
  }

  public var method: Method
  /// `https://…`, or `http://…` on a loopback address (simulators and tests).
  public var url: String
  /// Name and value, as they go onto the wire; no line ends.
  public var headers: [(name: String, value: String)]
  /// Sent with `post` only.
  public var body: [UInt8]
  /// Whether a body longer than `Gzip.threshold` goes out as `Content-Encoding: gzip`.
  public var isCompressible: Bool
  /// No answer is waited for after this instant; the client's own timeout may be earlier.
  public var deadline: Instant
  /// Whether to ask twice does no harm: then a new connection that brings no answer is given up earlier.
  public var isRepeatable = false
  /// Nothing leaves that has no connection by then.
  public var connectDeadline = Instant.distantFuture
  /// Asked on the loop when there is a connection, just before the request is written; nil: it may leave.
  public var mayLeave: (@Sendable () -> Bool)?

  public init(
    method: Method = .post, url: String, headers: [(name: String, value: String)] = [], body: [UInt8] = [],
    isCompressible: Bool = false, deadline: Instant = .distantFuture
  ) {
    self.method = method
    self.url = url
    self.headers = headers
    self.body = body
    self.isCompressible = isCompressible
    self.deadline = deadline
  }
}

/// An answer, whatever its status.
public struct CurlResponse: Sendable, Equatable {
  public var status: UInt16
  /// The body, decompressed; at most `CurlConfiguration.responseSizeMax` bytes.
  public var body: [UInt8]
  /// The `Retry-After` header as it stands.
  public var retryAfter: [UInt8]?
  /// The `Date` header as it stands.
  public var date: [UInt8]?
  /// When the request began to leave.
  public var sentAt: Instant

  public init(status: UInt16, body: [UInt8], retryAfter: [UInt8]? = nil, date: [UInt8]? = nil, sentAt: Instant) {
    self.status = status
    self.body = body
    self.retryAfter = retryAfter
    self.date = date
    self.sentAt = sentAt
  }
}

/// Why there is no answer. Holds no header, no body and no query.
public struct CurlFailure: Error, Sendable, Equatable, CustomStringConvertible {
  /// The raw values are the reasons that logs, metrics and the history show.
  public enum Reason: String, CaseIterable, Sendable {
    /// The URL is neither https nor http on a loopback address.
    case addressNotAllowed = "AddressNotAllowed"
    /// A header has a line end or another control character in it.
    case malformedRequest = "MalformedRequest"
    /// The request might not leave when there was a connection for it.
    case withheld = "LeaseUnconfirmed"
    /// The deadline had passed before the request could leave.
    case deadlinePassed = "DeadlinePassed"
    /// The host's name could not be resolved.
    case nameNotResolved = "NameNotResolved"
    /// No connection could be made.
    case notConnected = "NotConnected"
    /// The proxy asks for another user and password, or for one (407, with some 401).
    case proxyAuthenticationRequired = "ProxyAuthenticationRequired"
    /// The proxy makes no tunnel.
    case proxyFailed = "ProxyFailed"
    /// The TLS handshake failed.
    case tlsFailed = "TLSFailed"
    /// The server's certificate is not trusted.
    case untrusted = "CertificateNotTrusted"
    /// The CA certificates could not be loaded.
    case rootsUnusable = "RootsUnusable"
    /// No answer came in time.
    case timedOut = "TimedOut"
    /// The connection was lost.
    case connectionLost = "ConnectionLost"
    /// The answer was larger than allowed.
    case responseTooLarge = "ResponseTooLarge"
    /// The answer was not HTTP.
    case malformedResponse = "MalformedResponse"
    /// The client was closed.
    case closed = "ClientClosed"
    /// The transfer failed.
    case other = "TransferFailed"
  }

  public var reason: Reason
  /// What the library says about it, for the log: a fixed text of its own, or ours about a proxy.
  public var detail: String
  /// When the request began to leave; nil if certainly not a byte of it did.
  public var sentAt: Instant?

  public init(_ reason: Reason, detail: String = "", sentAt: Instant? = nil) {
    self.reason = reason
    self.detail = detail
    self.sentAt = sentAt
  }

  public var description: String { detail.isEmpty ? reason.rawValue : "\(reason.rawValue): \(detail)" }
}

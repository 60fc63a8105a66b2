// The requests, responses and failures of CurlClient. All are values; nothing is thrown.

public import Runtime

/// One HTTP request to Expo, an OAuth endpoint or a webhook.
public struct CurlRequest: Sendable {
  public enum Method: Sendable {
    case get
    case post
  }

  public var method: Method
  /// `https://…`, or `http://…` on a loopback address (simulators and tests).
  public var url: String
  /// Name and value exactly as they are sent, without line ends.
  public var headers: [(name: String, value: String)]
  /// Sent with `post` only.
  public var body: [UInt8]
  /// Whether a body longer than `Gzip.threshold` is sent with `Content-Encoding: gzip`.
  public var isCompressible: Bool
  /// When the request times out. The client's own timeout may be earlier.
  public var deadline: Instant
  /// By which `CurlClient.cancel` finds it.
  public var tag: ObjectIdentifier?
  /// The request is not sent if it has no connection by then.
  public var connectDeadline = Instant.distantFuture
  /// Whether the request may be sent. Called on the loop when there is a connection, just before the request is written. Nil:
  /// always.
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
  /// The unparsed `Retry-After` header.
  public var retryAfter: [UInt8]?
  /// The unparsed `Date` header.
  public var date: [UInt8]?
  /// When sending the request began.
  public var sentAt: Instant

  public init(status: UInt16, body: [UInt8], retryAfter: [UInt8]? = nil, date: [UInt8]? = nil, sentAt: Instant) {
    self.status = status
    self.body = body
    self.retryAfter = retryAfter
    self.date = date
    self.sentAt = sentAt
  }
}

/// Why there is no answer. Contains no header, no body and no query.
public struct CurlFailure: Error, Sendable, Equatable, CustomStringConvertible {
  /// The raw values are the reasons that logs, metrics and the history show.
  public enum Reason: String, CaseIterable, Sendable {
    /// The URL is neither https nor http on a loopback address.
    case addressNotAllowed = "AddressNotAllowed"
    /// A header contains a line end or another control character.
    case malformedRequest = "MalformedRequest"
    /// `mayLeave` did not allow the request when there was a connection for it.
    case withheld = "LeaseUnconfirmed"
    /// The deadline passed before the request could be sent.
    case deadlinePassed = "DeadlinePassed"
    /// The host's name could not be resolved.
    case nameNotResolved = "NameNotResolved"
    /// No connection could be opened.
    case notConnected = "NotConnected"
    /// The proxy requires a user and password, or refuses the given ones (407; some proxies send 401).
    case proxyAuthenticationRequired = "ProxyAuthenticationRequired"
    /// The proxy opened no tunnel.
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
  /// A description for the log: a fixed text of the library, or our own text about a proxy.
  public var detail: String
  /// When sending the request began; nil if certainly no byte was sent.
  public var sentAt: Instant?

  public init(_ reason: Reason, detail: String = "", sentAt: Instant? = nil) {
    self.reason = reason
    self.detail = detail
    self.sentAt = sentAt
  }

  public var description: String { detail.isEmpty ? reason.rawValue : "\(reason.rawValue): \(detail)" }
}

// What the owner of an HTTP/2 connection gives it and is told: limits, events, how a request ended.

/// How a request ended.
public struct HTTP2Exchange: Sendable {
  public enum Result: Sendable {
    /// The complete response.
    case response(HTTP2Message)
    /// Certainly not processed: it never left, or the server said so (REFUSED_STREAM, GOAWAY). May be sent again at
    /// once.
    case refused(String)
    /// No answer by the deadline. If it left (`sentAt`), it may have been processed.
    case timedOut
    /// It left, and the stream or connection broke before the answer was complete: may have been processed.
    case lost(String)
  }

  public var result: Result
  /// When the first byte of the request was handed to the socket; nil if none was.
  public var sentAt: Instant?
  /// When the end was known.
  public var endedAt: Instant

  public init(_ result: Result, sentAt: Instant?, endedAt: Instant) {
    self.result = result
    self.sentAt = sentAt
    self.endedAt = endedAt
  }
}

/// What the owner of an `HTTP2Connection` is told, on the connection's loop.
public protocol HTTP2ConnectionDelegate: AnyObject {
  /// The connection is ready, or the server changed its limit: so many requests may be in flight.
  func connection(_ connection: HTTP2Connection, didLimitStreamsTo streamsMax: Int)
  /// A request ended. `tag` is what `request` was given.
  func connection(_ connection: HTTP2Connection, didEnd tag: Int, _ exchange: HTTP2Exchange)
  /// New requests had better go elsewhere, or may come again.
  func connection(_ connection: HTTP2Connection, didBecome health: HTTP2ConnectionHealth)
  /// The server said GOAWAY (`reason` begins with that word), or there are no stream ids left: no new requests; those in
  /// flight still end, then the connection closes.
  func connection(_ connection: HTTP2Connection, isGoingAwayBecause reason: String)
  /// The last call: closed, with what was wrong, or nil when the close was in order.
  func connection(_ connection: HTTP2Connection, didCloseWith error: HTTP2Error?)
}

/// Limits and times of one connection.
public struct HTTP2ConnectionSettings: Sendable {
  /// For one address: from SYN, through CONNECT where there is a proxy, to the end of the TLS handshake.
  public var connectTimeout = Nanoseconds.seconds(4)
  /// From the end of the TLS handshake to SETTINGS that allow a stream. A connection that later allows none for this time
  /// is left for another.
  public var settingsTimeout = Nanoseconds.seconds(2)
  /// Never more requests in flight than this, whatever the server allows.
  public var streamsMax = 1000
  /// How long an answer is waited for, if the request's deadline is not sooner.
  public var requestTimeout = Nanoseconds.seconds(10)
  /// How much longer than its deadline the answer to a request that has left is waited for: it may say that the deadline was
  /// missed, where silence says nothing.
  public var lateAnswerTimeout = Nanoseconds.zero
  /// When the connection counts as lost although nobody closed it.
  public var liveness = HTTP2LivenessSettings()
  /// How the system finds out that the peer of an idle connection is gone.
  public var keepalive = TCPKeepalive()
  /// Frames are only made while fewer bytes than this wait for the socket.
  public var outputBytesMax = 256 * 1024
  public var session = HTTP2SessionSettings()
  /// Who looks the host's name up.
  public var resolver = NameResolver.system
  /// What is known of the host's addresses.
  public var addresses = AddressBook.shared

  public init() {}
}

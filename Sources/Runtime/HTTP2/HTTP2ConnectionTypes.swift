// Types between an HTTP/2 connection and its owner: limits, events, and how a request ended.

/// How a request ended.
public struct HTTP2Exchange: Sendable {
  public enum Result: Sendable {
    /// The complete response.
    case response(HTTP2Message)
    /// Certainly not processed: it was not sent, or the server refused it (REFUSED_STREAM, GOAWAY). May be sent again at once.
    case refused(String)
    /// No answer by the deadline. If it was sent (`sentAt`), it may have been processed.
    case timedOut
    /// It was sent, and the stream or connection broke before the answer was complete. It may have been processed.
    case lost(String)
  }

  public var result: Result
  /// When the socket took the first byte of the request; nil if it took none.
  public var sentAt: Instant?
  /// When the end became known.
  public var endedAt: Instant

  public init(_ result: Result, sentAt: Instant?, endedAt: Instant) {
    self.result = result
    self.sentAt = sentAt
    self.endedAt = endedAt
  }
}

/// The owner of an `HTTP2Connection`. Called on the connection's loop.
public protocol HTTP2ConnectionDelegate: AnyObject {
  /// The connection is ready, or the server changed its limit. At most this many requests may be in flight.
  func connection(_ connection: HTTP2Connection, didLimitStreamsTo streamsMax: Int)
  /// Whether all requests may be written now. If not, `mayWrite` is asked for each that has not left. Default: true.
  func connection(_ connection: HTTP2Connection, mayWriteRequestsAt now: Instant) -> Bool
  /// Whether a request may be written now. A request that may not, and has not left, ends as refused. Default: true.
  func connection(_ connection: HTTP2Connection, mayWrite tag: Int, at now: Instant) -> Bool
  /// A request ended. `tag` is what `request` was given.
  func connection(_ connection: HTTP2Connection, didEnd tag: Int, _ exchange: HTTP2Exchange)
  /// The connection's health has changed: whether new requests should use other connections.
  func connection(_ connection: HTTP2Connection, didBecome health: HTTP2ConnectionHealth)
  /// The server sent GOAWAY (`reason` begins with that word), or no stream ids are left. The connection takes no new requests,
  /// finishes those in flight, and closes.
  func connection(_ connection: HTTP2Connection, isGoingAwayBecause reason: String)
  /// The connection is closed. The error is nil after an orderly close. This is the last call.
  func connection(_ connection: HTTP2Connection, didCloseWith error: HTTP2Error?)
}

extension HTTP2ConnectionDelegate {
  public func connection(_ connection: HTTP2Connection, mayWriteRequestsAt now: Instant) -> Bool { true }
  public func connection(_ connection: HTTP2Connection, mayWrite tag: Int, at now: Instant) -> Bool { true }
}

/// Limits and times of one connection.
public struct HTTP2ConnectionSettings: Sendable {
  /// Maximum time for one address: from SYN, through CONNECT if there is a proxy, to the end of the TLS handshake.
  public var connectTimeout = Nanoseconds.seconds(4)
  /// Maximum time from the end of the TLS handshake to SETTINGS that allow a stream. A connection that later allows no streams
  /// for this time is replaced.
  public var settingsTimeout = Nanoseconds.seconds(2)
  /// Maximum number of requests in flight, even if the server allows more.
  public var streamsMax = 1000
  /// Maximum wait for an answer, unless the request's deadline is sooner.
  public var requestTimeout = Nanoseconds.seconds(10)
  /// How long after its deadline the connection still waits for the answer to a request that was sent. The answer may tell that the
  /// deadline was missed; silence tells nothing.
  public var lateAnswerTimeout = Nanoseconds.zero
  /// When the connection counts as lost although it is not closed.
  public var liveness = HTTP2LivenessSettings()
  /// How the system finds out that the peer of an idle connection is gone.
  public var keepalive = TCPKeepalive()
  /// Frames are written only while fewer bytes than this wait for the socket.
  public var outputBytesMax = 256 * 1024
  public var session = HTTP2SessionSettings()
  /// Looks up the host's name.
  public var resolver = NameResolver.system
  /// The address book with the results of earlier connections.
  public var addresses = AddressBook.shared

  public init() {}
}

// The types of an HTTP/2 session: error codes, messages, events, settings.

/// An error code of RFC 9113 §7.
public struct HTTP2ErrorCode: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }

  public static let noError = HTTP2ErrorCode(rawValue: 0)
  public static let protocolError = HTTP2ErrorCode(rawValue: 1)
  public static let internalError = HTTP2ErrorCode(rawValue: 2)
  public static let flowControlError = HTTP2ErrorCode(rawValue: 3)
  public static let frameSizeError = HTTP2ErrorCode(rawValue: 6)
  /// The stream was certainly not processed (RFC 9113 §8.7).
  public static let refusedStream = HTTP2ErrorCode(rawValue: 7)
  public static let cancel = HTTP2ErrorCode(rawValue: 8)
  public static let compressionError = HTTP2ErrorCode(rawValue: 9)
  public static let enhanceYourCalm = HTTP2ErrorCode(rawValue: 11)

  private static let names = [
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
  ]
  public var description: String {
    Int(rawValue) < Self.names.count ? Self.names[Int(rawValue)] : "error code \(rawValue)"
  }
}

/// A whole request or response: header fields and body.
public struct HTTP2Message: Sendable {
  public var headers = HTTP2HeaderBlock()
  public var body: [UInt8] = []
  /// Whether the body was longer than the session's limit. `body` is its beginning then.
  public var isTruncated = false

  public init() {}

  /// Moves the contents out and leaves an empty message.
  mutating func removeMessage() -> HTTP2Message {
    var taken = HTTP2Message()
    swap(&self, &taken)
    return taken
  }

  /// Maximum bytes of memory of an empty message that is kept.
  private static let capacityKept = 8 * 1024

  /// Whether the memory is worth keeping for another message.
  var isReusable: Bool { body.capacity <= Self.capacityKept && headers.capacity <= Self.capacityKept }

  /// Removes the contents and keeps the memory.
  mutating func removeAll() {
    if !headers.isEmpty { headers.removeAll() }
    if !body.isEmpty { body.removeAll(keepingCapacity: true) }
    isTruncated = false
  }

  /// `:status` as a number; 0 when there is none.
  public var status: UInt16 { headers.status }
}

/// An event of a client's session.
public enum HTTP2Event: Sendable {
  /// A request has ended. `response` is set if it was complete. `tag` is the one given to `request`.
  case ended(tag: Int, HTTP2ErrorCode, response: HTTP2Message?)
  /// The peer's SETTINGS arrived: see `peerStreamsMax`.
  case settings
  /// The peer takes no new streams. Those above `lastStream` have ended as refused.
  case goAway(lastStream: Int32, HTTP2ErrorCode, debugData: [UInt8])
  /// The peer answered the PING with this number.
  case pong(UInt64)
}

/// A complete request of a server's session. `respond` answers it.
public struct HTTP2Request: Sendable {
  public var stream: Int32
  public var message: HTTP2Message
}

/// The settings that a session sends its peer, and its own limits.
public struct HTTP2SessionSettings: Sendable {
  /// SETTINGS_MAX_CONCURRENT_STREAMS sent to the peer (server side); nil sends none.
  public var streamsMax: UInt32?
  /// SETTINGS_INITIAL_WINDOW_SIZE sent to the peer, bytes.
  public var streamWindowBytes: Int32 = 256 * 1024
  /// The receive window of the whole connection, bytes.
  public var connectionWindowBytes: Int32 = 16 * 1024 * 1024
  /// Client side: maximum number of streams before the peer's SETTINGS arrive.
  public var peerStreamsMaxBeforeSettings: UInt32 = 1
  /// Client side: the id of the first stream, odd. There are 2³⁰ ids from 1 on; a test may begin near their end.
  public var firstStreamID: Int32 = 1
  /// Maximum bytes of a body that are kept. A client does not wait for the rest: the stream ends there.
  public var bodyBytesMax = 64 * 1024
  /// Client side: the limits of the server's budget.
  public var budget = HTTP2PeerBudget.Limits()

  public init() {}
}

/// Why a session cannot continue.
public struct HTTP2Error: Error, CustomStringConvertible, Sendable {
  public let description: String
  public init(_ description: String) { self.description = description }
}

// Limits the work that a misbehaving server can cause without answering. All such limits are here.
//
// In HTTP/2 a server can send frames that cause work and bring no answer: unrequested PONGs, empty DATA, interim answers, unknown
// frames, SETTINGS, WINDOW_UPDATE, GOAWAY with debug data. All connections of a loop share its thread, so one such server would
// slow down the others. Work is counted in credits: a frame costs one, and one more for each KiB. Each stream has credits of its
// own, enough for any honest answer. Further frames of a stream, and frames of no open stream, use the connection's credits,
// which come back with time and with answers. A server that has used them up is disconnected with ENHANCE_YOUR_CALM.
//
// With the default values a flood takes at most some milliseconds of the loop before its connection is closed. `ReconnectLimiter`
// decides when the next one is opened.

/// The credits of one connection's server.
public struct HTTP2PeerBudget: Sendable {
  /// The limits of a budget.
  public struct Limits: Sendable, Equatable {
    /// Initial and maximum number of credits of a connection. It is enough for the late answers to a thousand requests that were
    /// given up together.
    public var creditsMax = 4096
    /// Number of credits that come back in a second, for the PINGs and SETTINGS that honest servers send while nothing is in
    /// flight.
    public var creditsPerSecond = 64
    /// Number of credits that an ended stream adds, for its WINDOW_UPDATEs and for late frames of a stream that was given up.
    public var creditsPerEnd = 4
    /// Number of bytes, held back by flow control and then sent, that add one credit, because their WINDOW_UPDATEs were needed.
    public var bytesSentPerCredit = 256
    /// Number of credits of each stream for its answer: 32 KiB in one frame, or 32 small frames.
    public var creditsPerStream: Int32 = 32
    /// Number of bytes of a frame, or of a decoded header list, that cost one further credit.
    public var bytesPerCredit = 1024
    /// Additional cost of SETTINGS and GOAWAY, because each goes over every stream.
    public var creditsForAllStreams = 16
    /// Maximum size of an answer's header list. A field counts 32 bytes more than its name and value (RFC 9113 §6.5.2). The
    /// server is told the limit. A stream that exceeds it ends.
    public var headerListBytesMax = 16 * 1024
    /// Maximum number of fields of an answer's header list. A stream that exceeds it ends.
    public var headerFieldsMax = 128
    /// Maximum size of a header list, counted the same way, above which the connection ends. Every block must be decoded, but not
    /// to any length.
    public var headerListBytesDecodedMax = 64 * 1024
    /// Maximum bytes of an encoded header block, including its CONTINUATION frames.
    public var headerBlockBytesMax = 64 * 1024
    /// Maximum bytes of GOAWAY's debug data that are kept. The reason is a word, or a line of JSON.
    public var debugDataBytesMax = 512
    /// Maximum number of unsent PING and SETTINGS acknowledgements. A server that never reads is disconnected above it.
    public var acknowledgementsMax = 1000

    public init() {}
  }

  let limits: Limits
  private(set) var credits: Int
  private var refilledAt: Instant?

  init(limits: Limits) {
    self.limits = limits
    credits = limits.creditsMax
  }

  /// The cost of a frame.
  ///
  /// - Parameter length: length of its payload in bytes.
  func cost(ofFrame length: Int) -> Int { 1 + length / limits.bytesPerCredit }

  /// Spends credits of the connection. Returns whether there were enough.
  mutating func spend(_ cost: Int) -> Bool {
    credits -= cost
    return credits >= 0
  }

  /// Spends credits of a stream, and the rest from the connection. Returns whether there were enough.
  mutating func spend(_ cost: Int, of stream: inout Int32) -> Bool {
    let own = min(cost, Int(stream))
    stream -= Int32(own)
    return own == cost || spend(cost - own)
  }

  /// A stream of ours ended, in any way.
  mutating func didEndStream() {
    credits = min(limits.creditsMax, credits + limits.creditsPerEnd)
  }

  /// A part of a body that flow control held back was sent.
  mutating func didSend(_ bytes: Int) {
    credits = min(limits.creditsMax, credits + bytes / limits.bytesSentPerCredit)
  }

  /// Restores credits as time passes.
  mutating func refill(_ now: Instant) {
    guard let last = refilledAt else { return refilledAt = now }
    guard last + .milliseconds(100) <= now else { return }
    let milliseconds = min((now - last).milliseconds, 3_600_000)
    credits = min(limits.creditsMax, credits + Int(milliseconds) * limits.creditsPerSecond / 1000)
    refilledAt = now
  }
}

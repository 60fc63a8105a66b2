// What a server may make its client do for nothing. All limits against servers that misbehave are here.
//
// HTTP/2 lets a server send frames that cost the client work and bring no answer nearer: PONGs nobody asked for, empty
// DATA, interim answers, unknown frames, SETTINGS, WINDOW_UPDATE, GOAWAY with debug data. All connections of a loop share
// its thread, so one such server slows the others down. Work is counted in credits: a frame costs one, and one more for
// each KiB of it. A stream has credits of its own, enough for any honest answer, and every request brings new ones. What
// goes beyond, and frames that belong to no open stream, are paid from the connection's credits, which come back with time
// and with answers. A server that has used them up is disconnected with ENHANCE_YOUR_CALM.
//
// With the default values a flood costs at most some milliseconds of the loop before its connection is closed, and
// `ReconnectLimiter` says when there is another.

/// The credits of one connection's server, and what they are spent on.
public struct HTTP2PeerBudget: Sendable {
  /// The limits of a budget.
  public struct Limits: Sendable, Equatable {
    /// Credits of a connection at its start, and at most. Enough for the late answers to a thousand requests that were given
    /// up together.
    public var creditsMax = 4096
    /// Credits that come back in a second. Honest servers send a PING or SETTINGS now and then while nothing is in flight.
    public var creditsPerSecond = 64
    /// Credits that an ended stream brings: its WINDOW_UPDATEs, and what still comes for a stream that was given up.
    public var creditsPerEnd = 4
    /// Bytes of a body held back by flow control that bring a credit when they leave: a window that is opened is no waste.
    public var bytesSentPerCredit = 256
    /// Credits of each stream for its answer: 32 KiB in one frame, or 32 small frames.
    public var creditsPerStream: Int32 = 32
    /// Bytes that cost a further credit: of a frame, and of a decoded header list.
    public var bytesPerCredit = 1024
    /// What SETTINGS and GOAWAY cost besides: each is looked at for every stream.
    public var creditsForAllStreams = 16
    /// The size of an answer's header list, a field counting 32 bytes more than its name and value (RFC 9113 §6.5.2).
    /// It is told to the server; the stream of a larger one ends.
    public var headerListBytesMax = 16 * 1024
    /// Fields of an answer's header list; the stream of a longer one ends.
    public var headerFieldsMax = 128
    /// A header list that is larger than this, counted likewise, ends the connection: every block has to be decoded, but not
    /// to any length.
    public var headerListBytesDecodedMax = 64 * 1024
    /// Bytes of a header block before it is decoded, its CONTINUATION frames included.
    public var headerBlockBytesMax = 64 * 1024
    /// Bytes of GOAWAY's debug data that are kept: the reason is a word, or a line of JSON.
    public var debugDataBytesMax = 512
    /// Unsent PING and SETTINGS acknowledgements. A server that never reads is disconnected above it.
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

  /// What a frame costs.
  ///
  /// - Parameter length: of its payload, bytes.
  func cost(ofFrame length: Int) -> Int { 1 + length / limits.bytesPerCredit }

  /// Spends credits of the connection. Returns whether there were enough.
  mutating func spend(_ cost: Int) -> Bool {
    credits -= cost
    return credits >= 0
  }

  /// Spends credits of a stream, and of the connection what the stream no longer has. Returns whether there were enough.
  mutating func spend(_ cost: Int, of stream: inout Int32) -> Bool {
    let own = min(cost, Int(stream))
    stream -= Int32(own)
    return own == cost || spend(cost - own)
  }

  /// A stream of ours ended, however it did.
  mutating func didEndStream() {
    credits = min(limits.creditsMax, credits + limits.creditsPerEnd)
  }

  /// A part of a body that was held back could leave.
  mutating func didSend(_ bytes: Int) {
    credits = min(limits.creditsMax, credits + bytes / limits.bytesSentPerCredit)
  }

  /// Credits come back with time.
  mutating func refill(_ now: Instant) {
    guard let last = refilledAt else { return refilledAt = now }
    guard last + .milliseconds(100) <= now else { return }
    let milliseconds = min((now - last).milliseconds, 3_600_000)
    credits = min(limits.creditsMax, credits + Int(milliseconds) * limits.creditsPerSecond / 1000)
    refilledAt = now
  }
}

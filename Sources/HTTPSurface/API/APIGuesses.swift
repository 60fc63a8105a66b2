// Limits how many wrong keys each peer may show. Pure.

internal import Runtime
internal import Settings

/// The remaining tries of each peer. A peer is a network (`IPAddress.network`), because a client with one IPv6 address
/// usually has 2^64 of them.
struct APIGuesses {
  /// Maximum number of tries at once. A backend with a wrong key may send many requests at a time.
  static let savedMax = 100.0
  /// Maximum number of tries a second in the long run.
  static let perSecond = 10.0
  /// Maximum number of peers with a bucket of their own. All others share one bucket.
  static let peersMax = 4_096
  private static let sweptEvery = Nanoseconds.seconds(1)

  private static var fresh: TokenBucket { TokenBucket(saved: savedMax, perSecond: perSecond) }

  /// A peer without an entry has all of its tries.
  private var peers: [IPRange: TokenBucket] = [:]
  private var others = Self.fresh
  private var sweptAt: Instant?

  /// Uses one try of this peer. Returns false if none is left.
  mutating func allow(_ peer: IPAddress, _ now: Instant) -> Bool {
    let peer = peer.network
    if peers[peer] == nil, peers.count >= Self.peersMax { sweep(now) }
    guard peers[peer] != nil || peers.count < Self.peersMax else { return others.consume(now) }
    return peers[peer, default: Self.fresh].consume(now)
  }

  /// Whether the peer has a try left.
  mutating func hasAny(_ peer: IPAddress, _ now: Instant) -> Bool {
    let peer = peer.network
    guard peers[peer] == nil else { return peers[peer]?.hasAny(now) ?? true }
    return peers.count < Self.peersMax || others.hasAny(now)
  }

  /// Removes the peers whose buckets are full again.
  private mutating func sweep(_ now: Instant) {
    if let sweptAt, now < sweptAt + Self.sweptEvery { return }
    sweptAt = now
    for (peer, bucket) in peers {
      var bucket = bucket
      if bucket.isFull(now) { peers[peer] = nil }
    }
  }
}

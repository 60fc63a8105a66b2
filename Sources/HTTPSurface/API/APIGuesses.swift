// How many keys that are not good each peer may show. Pure.

internal import Runtime
internal import Settings

/// Tries of each peer. A peer is a network (`IPAddress.network`): whoever has one address of IPv6 has 2^64 of them.
struct APIGuesses {
  /// Tries at once, for a backend that has the wrong key and many requests.
  static let savedMax = 100.0
  /// Tries in the long run.
  static let perSecond = 10.0
  /// Peers that are told apart. Whoever comes beyond them shares one bucket.
  static let peersMax = 4_096
  private static let sweptEvery = Nanoseconds.seconds(1)

  private static var fresh: TokenBucket { TokenBucket(saved: savedMax, perSecond: perSecond) }

  /// Of peers that are not in it nothing is missing.
  private var peers: [IPRange: TokenBucket] = [:]
  private var others = Self.fresh
  private var sweptAt: Instant?

  /// Takes a try of this peer's; false where it has none left.
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

  /// Forgets those of whom nothing is missing any more.
  private mutating func sweep(_ now: Instant) {
    if let sweptAt, now < sweptAt + Self.sweptEvery { return }
    sweptAt = now
    for (peer, bucket) in peers {
      var bucket = bucket
      if bucket.isFull(now) { peers[peer] = nil }
    }
  }
}

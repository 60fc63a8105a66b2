// The order in which waiting connections are closed when one must be: first the oldest connection of the peer with the
// most connections.

import Settings

/// Waiting connections in an order that is fair to peers. All operations take constant time.
///
/// A peer with one connection is never first while another peer has two. Among peers with equal counts, the peer that
/// reached its count first is first. If every peer has one connection, that is the oldest connection.
struct FairOrder {
  private var peers: [IPRange: LinkedOrder<HTTPConnectionSeats.Seat>] = [:]
  private var peerOfSeat: [HTTPConnectionSeats.Seat: IPRange] = [:]
  /// Index 0: the peers with one connection; index 1: those with two; and so on. The last element is not empty.
  private var peersByCount: [LinkedOrder<IPRange>] = []

  var count: Int { peerOfSeat.count }

  /// The connection to close first; nil if there is none.
  var first: HTTPConnectionSeats.Seat? {
    peersByCount.last?.first.flatMap { peers[$0]?.first }
  }

  /// - Precondition: the seat is not in the order.
  mutating func append(_ seat: HTTPConnectionSeats.Seat, of peer: IPRange) {
    peers[peer, default: LinkedOrder()].append(seat)
    peerOfSeat[seat] = peer
    let count = peers[peer]?.count ?? 0
    move(peer, from: count - 1, to: count)
  }

  /// - Returns: whether the seat was in the order.
  mutating func remove(_ seat: HTTPConnectionSeats.Seat) -> Bool {
    guard let peer = peerOfSeat.removeValue(forKey: seat) else { return false }
    peers[peer]?.remove(seat)
    let count = peers[peer]?.count ?? 0
    if count == 0 { peers[peer] = nil }
    move(peer, from: count + 1, to: count)
    return true
  }

  private mutating func move(_ peer: IPRange, from old: Int, to new: Int) {
    if old > 0 { peersByCount[old - 1].remove(peer) }
    if new > peersByCount.count { peersByCount.append(LinkedOrder()) }
    if new > 0 { peersByCount[new - 1].append(peer) }
    while peersByCount.last?.isEmpty == true { peersByCount.removeLast() }
  }
}

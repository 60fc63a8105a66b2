// Which of many waiting connections goes first when one has to: the oldest of the peer that has the most of them.

import Settings

/// Connections in an order that is fair to peers. All operations take constant time.
///
/// A peer with one connection is never first while another has two. Among peers with equally many, the peer that has had so many
/// for the longest time is first; where each has one, that is the oldest connection of all.
struct FairOrder {
  private var peers: [IPRange: LinkedOrder<HTTPConnectionSeats.Seat>] = [:]
  private var peerOfSeat: [HTTPConnectionSeats.Seat: IPRange] = [:]
  /// Peers with one connection, with two, and so on; the last is not empty.
  private var peersByCount: [LinkedOrder<IPRange>] = []

  var count: Int { peerOfSeat.count }

  /// Which connection goes first; nil: there is none.
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

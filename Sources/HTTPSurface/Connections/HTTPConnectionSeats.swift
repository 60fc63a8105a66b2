// Which connection must close when a listener is full and a new connection arrives.
//
// If a full listener refused new connections, then a hundred silent connections would keep everyone else out, and
// health probes would fail. So a connection is evicted for each new one. A connection whose request was *let in*, with
// a good key, is not evicted while that request is in progress. Such requests end within a time limit of the gateway.
//
// The other connections are of three kinds, evicted in this order. *Newcomers* have had no successful answer, and wait
// for their client. *Asking* connections are newcomers whose request has arrived completely and waits for the gateway.
// They are evicted after newcomers, so that a probe among a thousand slow connections gets its answer. *Proven*
// connections have had a successful answer. At most half of all seats are theirs; above that, the first of them becomes
// a newcomer again. So a client cannot keep newcomers out by getting one answer on many connections, and a client that
// only connects cannot evict connections in use. Within each kind, the oldest connection of the peer with the most
// connections is evicted first (`FairOrder`): a client that floods the listener from one address evicts its own
// connections. If all connections come from one address, such as a proxy, the oldest is evicted.
//
// Pure: `HTTPConnectionCount` closes the evicted connections.

import Settings

/// The connections of one listener.
struct HTTPConnectionSeats {
  /// The number of a connection. It is never used again.
  typealias Seat = UInt64

  enum Admission: Equatable {
    /// - Parameter evicted: the connection that lost its seat and must be closed; nil for none.
    case seated(Seat, evicted: Seat?)
    /// Every connection has a request in progress that was let in.
    case full
  }

  private let seatsMax: Int
  private let provenMax: Int
  /// At or below this number of newcomers, proven connections are evicted before them, so that new connections have
  /// time to send a request.
  private let newcomersMin: Int
  private var peers: [Seat: IPRange] = [:]
  private var newcomers = FairOrder()
  private var asking = FairOrder()
  private var proven = FairOrder()
  private var nextSeat: Seat = 0

  /// - Parameter max: maximum number of connections.
  init(max: Int) {
    seatsMax = max
    provenMax = max / 2
    newcomersMin = max / 8
  }

  var count: Int { peers.count }
  var isFull: Bool { peers.count >= seatsMax }

  /// A new connection. It begins as a newcomer.
  mutating func admit(_ peer: IPRange) -> Admission {
    var evicted: Seat?
    if isFull {
      guard let seat = firstToGo else { return .full }
      leave(seat)
      evicted = seat
    }
    let seat = nextSeat
    nextSeat += 1
    peers[seat] = peer
    newcomers.append(seat, of: peer)
    return .seated(seat, evicted: evicted)
  }

  /// A newcomer's request has arrived completely.
  mutating func asks(_ seat: Seat) {
    guard let peer = peers[seat], newcomers.remove(seat) else { return }
    asking.append(seat, of: peer)
  }

  /// The request was refused. The connection waits for its client again.
  mutating func isRefused(_ seat: Seat) {
    guard let peer = peers[seat], asking.remove(seat) else { return }
    newcomers.append(seat, of: peer)
  }

  /// A request was let in. This method and the following ones ignore a seat that was evicted.
  mutating func works(_ seat: Seat) {
    _ = newcomers.remove(seat) || asking.remove(seat) || proven.remove(seat)
  }

  /// A request was answered with success. The connection waits for its client again, to send or to read.
  mutating func waits(_ seat: Seat) {
    guard let peer = peers[seat] else { return }
    works(seat)
    proven.append(seat, of: peer)
    guard proven.count > provenMax, let demoted = proven.first, let peer = peers[demoted] else { return }
    _ = proven.remove(demoted)
    newcomers.append(demoted, of: peer)
  }

  /// The connection is closed.
  mutating func leave(_ seat: Seat) {
    works(seat)
    peers[seat] = nil
  }

  private var firstToGo: Seat? {
    if newcomers.count > newcomersMin { return newcomers.first }
    if newcomers.count + asking.count > newcomersMin, let seat = asking.first { return seat }
    return proven.first ?? asking.first ?? newcomers.first
  }
}

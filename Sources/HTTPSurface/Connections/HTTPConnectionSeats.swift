// Who may keep a connection when a listener has as many as it may have.
//
// A listener that refuses whoever comes last belongs to whoever came first and says nothing: a hundred silent connections, and no
// probe is answered. So a connection gives way to a new one. Only a connection whose request was *let in*, with a good key, never does
// while that request is under way: such requests end by themselves, within a time that the gateway sets.
//
// All other connections are of three kinds. *Newcomers* have not been answered well yet, and wait for their client: a refusal is no
// good answer. *Asking* ones are newcomers whose request has come in whole and that wait for us: they go after those who wait for
// their client, so that a probe among a thousand slow connections is answered. *Proven* ones have been answered well, and go
// later still, but at most half of all seats are theirs: beyond that the first of them counts as a newcomer again. So nobody can
// keep newcomers out by being answered once on many connections, and nobody who only connects can drive out those that are in
// use. Within each kind the oldest connection of the peer with the most goes first (`FairOrder`): whoever floods the listener from
// one address drives out its own connections. Where all come from one address, as behind a proxy, the oldest goes.
//
// Pure: `HTTPConnectionCount` closes what gives way.

import Settings

/// The connections of one listener.
struct HTTPConnectionSeats {
  /// The number of a connection; never used again.
  typealias Seat = UInt64

  enum Admission: Equatable {
    /// - Parameter evicted: gives way, and has no seat any more.
    case seated(Seat, evicted: Seat?)
    /// All connections have a request under way that was let in.
    case full
  }

  private let seatsMax: Int
  private let provenMax: Int
  /// While there are fewer newcomers, proven connections give way before them: a new connection has time for its request.
  private let newcomersMin: Int
  private var peers: [Seat: IPRange] = [:]
  private var newcomers = FairOrder()
  private var asking = FairOrder()
  private var proven = FairOrder()
  private var nextSeat: Seat = 0

  /// - Parameter max: connections at a time.
  init(max: Int) {
    seatsMax = max
    provenMax = max / 2
    newcomersMin = max / 8
  }

  var count: Int { peers.count }
  var isFull: Bool { peers.count >= seatsMax }

  /// A new connection, without a good answer so far.
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

  /// A newcomer's request has come in whole.
  mutating func asks(_ seat: Seat) {
    guard let peer = peers[seat], newcomers.remove(seat) else { return }
    asking.append(seat, of: peer)
  }

  /// It was refused, and waits for its client again.
  mutating func isRefused(_ seat: Seat) {
    guard let peer = peers[seat], asking.remove(seat) else { return }
    newcomers.append(seat, of: peer)
  }

  /// A request was let in. A seat that was given away is passed over, here and below.
  mutating func works(_ seat: Seat) {
    _ = newcomers.remove(seat) || asking.remove(seat) || proven.remove(seat)
  }

  /// It was answered well; from now on it waits for its client again, to send or to read.
  mutating func waits(_ seat: Seat) {
    guard let peer = peers[seat] else { return }
    works(seat)
    proven.append(seat, of: peer)
    guard proven.count > provenMax, let demoted = proven.first, let peer = peers[demoted] else { return }
    _ = proven.remove(demoted)
    newcomers.append(demoted, of: peer)
  }

  /// The connection is gone.
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

// Who may keep a connection when a listener has as many as it may have.
//
// A listener that refuses whoever comes last belongs to whoever came first and says nothing: a hundred silent connections, and no
// probe is answered. So a connection that waits for its client gives way to a new one. A connection with a request under way
// never does: requests end by themselves, within a time that the gateway sets.
//
// Waiting connections are of two kinds. *Newcomers* have not been answered well yet. *Proven* ones have, and go later, but at most
// half of all seats are theirs: beyond that the first of them counts as a newcomer again. So nobody can keep newcomers out by
// being answered once on many connections, and nobody who only connects can drive out those that are in use. Within each kind the
// oldest connection of the peer with the most goes first (`FairOrder`): whoever floods the listener from one address drives out
// its own connections. Where all come from one address, as behind a proxy, the oldest goes.
//
// Pure: `HTTPConnectionCount` closes what gives way.

/// The connections of one listener.
struct HTTPConnectionSeats {
  /// The number of a connection; never used again.
  typealias Seat = UInt64

  enum Admission: Equatable {
    /// - Parameter evicted: gives way, and has no seat any more.
    case seated(Seat, evicted: Seat?)
    /// All connections have a request under way.
    case full
  }

  private struct Occupant {
    let peer: IPRange
    var isProven = false
  }

  private let seatsMax: Int
  private let provenMax: Int
  /// While fewer newcomers wait, proven connections give way before them: a new connection has time for its request.
  private let newcomersMin: Int
  private var occupants: [Seat: Occupant] = [:]
  private var newcomers = FairOrder()
  private var proven = FairOrder()
  private var nextSeat: Seat = 0

  /// - Parameter max: connections at a time.
  init(max: Int) {
    seatsMax = max
    provenMax = max / 2
    newcomersMin = max / 8
  }

  var count: Int { occupants.count }

  /// A new connection, which waits for its first request.
  mutating func admit(_ peer: IPRange) -> Admission {
    var evicted: Seat?
    if occupants.count >= seatsMax {
      guard let seat = firstToGo else { return .full }
      leave(seat)
      evicted = seat
    }
    let seat = nextSeat
    nextSeat += 1
    occupants[seat] = Occupant(peer: peer)
    newcomers.append(seat, of: peer)
    return .seated(seat, evicted: evicted)
  }

  /// A request is under way. A seat that was given away is passed over, here and below.
  mutating func works(_ seat: Seat) {
    newcomers.remove(seat)
    proven.remove(seat)
  }

  /// It waits for its client again, to send or to read; counted from now.
  ///
  /// - Parameter isProven: its last answer was no refusal.
  mutating func waits(_ seat: Seat, isProven: Bool) {
    guard let occupant = occupants[seat] else { return }
    works(seat)
    guard isProven || occupant.isProven else { return newcomers.append(seat, of: occupant.peer) }
    occupants[seat]?.isProven = true
    proven.append(seat, of: occupant.peer)
    guard proven.count > provenMax, let demoted = proven.first, let peer = occupants[demoted]?.peer else { return }
    proven.remove(demoted)
    occupants[demoted]?.isProven = false
    newcomers.append(demoted, of: peer)
  }

  /// The connection is gone.
  mutating func leave(_ seat: Seat) {
    works(seat)
    occupants[seat] = nil
  }

  private var firstToGo: Seat? {
    newcomers.count > newcomersMin ? newcomers.first : proven.first ?? newcomers.first
  }
}

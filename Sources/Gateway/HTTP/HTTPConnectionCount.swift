// How many connections a listener has, so that nobody can take the descriptors that the pushes need, and who gives way to whom.

internal import Logging
internal import Runtime
internal import Synchronization

/// Counts connections, and closes those that give way to new ones.
final class HTTPConnectionCount: Sendable {
  enum Admission: Equatable {
    case served(HTTPConnectionSeats.Seat)
    /// One too many: told so, and closed.
    case refused
    /// Too many for there to be room to tell them.
    case dropped
  }

  private struct Connections {
    var seats: HTTPConnectionSeats
    var closing: [HTTPConnectionSeats.Seat: @Sendable () -> Void] = [:]
    var refused = 0
    var quietUntil: Instant?
  }

  /// Maximum number of connections on their way out at a time.
  static let refusedMax = 32
  /// NIO accepts at most this many connections before it asks whether it may (`maxMessagesPerRead`).
  private static let acceptedAtOnce = 4

  /// At how many open connections a listener stops accepting, so that those that are served and those on their way out never
  /// exceed `max + refusedMax`; the others wait in the system's queue, without a descriptor of ours.
  static func acceptedMax(_ max: Int) -> Int { max + refusedMax - acceptedAtOnce + 1 }

  /// The log says at most this often that connections give way.
  private static let quiet = Nanoseconds.seconds(60)

  private let listener: String
  private let logger: Logger?
  private let clock: any GatewayClock
  private let connections: Mutex<Connections>

  /// - Parameters:
  ///   - max: connections at a time.
  ///   - listener: the key of the configuration, for the log.
  init(max: Int, listener: String = "", logger: Logger? = nil, clock: any GatewayClock = SystemClock()) {
    self.listener = listener
    self.logger = logger
    self.clock = clock
    connections = Mutex(Connections(seats: HTTPConnectionSeats(max: max)))
  }

  /// A new connection.
  ///
  /// - Parameter close: closes the connection, from any thread; called when it gives way to another.
  func admit(_ peer: IPRange, close: @escaping @Sendable () -> Void) -> Admission {
    let (admission, evicted, isLogged) = connections.withLock { connections in
      switch connections.seats.admit(peer) {
      case .seated(let seat, let evicted):
        connections.closing[seat] = close
        let closing = evicted.flatMap { connections.closing.removeValue(forKey: $0) }
        return (Admission.served(seat), closing, evicted != nil && isNews(&connections))
      case .full:
        guard connections.refused < Self.refusedMax else { return (Admission.dropped, nil, isNews(&connections)) }
        connections.refused += 1
        return (Admission.refused, nil, isNews(&connections))
      }
    }
    evicted?()
    if isLogged { logger?.warning("A listener is full", metadata: ["listener": "\(listener)"]) }
    return admission
  }

  /// A request is under way: until `waits`, the connection gives way to nobody.
  func works(_ seat: HTTPConnectionSeats.Seat) {
    connections.withLock { $0.seats.works(seat) }
  }

  /// The connection waits for its client.
  ///
  /// - Parameter isProven: its last answer was no refusal.
  func waits(_ seat: HTTPConnectionSeats.Seat, isProven: Bool) {
    connections.withLock { $0.seats.waits(seat, isProven: isProven) }
  }

  func leave(_ admission: Admission) {
    connections.withLock { connections in
      switch admission {
      case .served(let seat):
        connections.seats.leave(seat)
        connections.closing[seat] = nil
      case .refused: connections.refused -= 1
      case .dropped: break
      }
    }
  }

  private func isNews(_ connections: inout Connections) -> Bool {
    let now = clock.now()
    if let until = connections.quietUntil, now < until { return false }
    connections.quietUntil = now + Self.quiet
    return true
  }
}

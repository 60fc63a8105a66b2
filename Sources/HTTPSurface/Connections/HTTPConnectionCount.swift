// How many connections a listener has, so that nobody can take the descriptors that the pushes need, and who gives way to whom.

internal import Logging
internal import Runtime
internal import Settings
internal import Synchronization

/// Counts connections, and closes those that give way to new ones.
package final class HTTPConnectionCount: Sendable {
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
    /// Nil: the listener was never full.
    var crowdedUntil: Instant?
    var quietUntil: Instant?
  }

  /// Maximum number of connections on their way out at a time.
  package static let refusedMax = 32
  /// Maximum number of connections accepted at a time (`maxMessagesPerRead` of the listening socket). NIO's own 4 let whoever keeps
  /// the event loop busy with requests have new connections wait for seconds.
  static let acceptedAtOnce = 16

  /// At how many open connections a listener stops accepting, so that those that are served and those on their way out never
  /// exceed `max + refusedMax`; the others wait in the system's queue, without a descriptor of ours.
  static func acceptedMax(_ max: Int) -> Int { max + refusedMax - acceptedAtOnce + 1 }

  /// How long a listener that was full counts as crowded.
  static let crowded = Nanoseconds.seconds(10)
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
    let now = clock.now()
    let (admission, evicted, isLogged) = connections.withLock { connections in
      if connections.seats.isFull { connections.crowdedUntil = now + Self.crowded }
      switch connections.seats.admit(peer) {
      case .seated(let seat, let evicted):
        connections.closing[seat] = close
        let closing = evicted.flatMap { connections.closing.removeValue(forKey: $0) }
        return (Admission.served(seat), closing, evicted != nil && isNews(&connections, now))
      case .full:
        guard connections.refused < Self.refusedMax else { return (Admission.dropped, nil, isNews(&connections, now)) }
        connections.refused += 1
        return (Admission.refused, nil, isNews(&connections, now))
      }
    }
    evicted?()
    if isLogged { logger?.warning("A listener is full", metadata: ["listener": "\(listener)"]) }
    return admission
  }

  /// A request has come in whole: until its answer, the connection gives way after those that wait for their client.
  func asks(_ seat: HTTPConnectionSeats.Seat) {
    connections.withLock { $0.seats.asks(seat) }
  }

  /// The request was refused.
  func isRefused(_ seat: HTTPConnectionSeats.Seat) {
    connections.withLock { $0.seats.isRefused(seat) }
  }

  /// A request was let in: until `waits`, the connection gives way to nobody.
  func works(_ seat: HTTPConnectionSeats.Seat) {
    connections.withLock { $0.seats.works(seat) }
  }

  /// The connection was answered well, and waits for its client.
  func waits(_ seat: HTTPConnectionSeats.Seat) {
    connections.withLock { $0.seats.waits(seat) }
  }

  /// Whether the listener was full just now: then whoever shows no good key has one answer a connection, for new ones wait.
  var isCrowded: Bool {
    let now = clock.now()
    return connections.withLock { connections in connections.crowdedUntil.map { now < $0 } ?? false }
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

  private func isNews(_ connections: inout Connections, _ now: Instant) -> Bool {
    if let until = connections.quietUntil, now < until { return false }
    connections.quietUntil = now + Self.quiet
    return true
  }
}

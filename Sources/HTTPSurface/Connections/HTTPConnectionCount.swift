// Limits the connections of a listener, so that clients cannot use up the file descriptors that pushes need.

internal import Logging
internal import Runtime
internal import Settings
internal import Synchronization

/// Counts the connections of a listener, and closes those that are evicted by new ones (`HTTPConnectionSeats`).
package final class HTTPConnectionCount: Sendable {
  enum Admission: Equatable {
    case served(HTTPConnectionSeats.Seat)
    /// There is no seat. The connection gets a 503, and is closed.
    case refused
    /// There is no seat, and `refusedMax` connections are being refused already. The connection is closed without an
    /// answer.
    case dropped
  }

  private struct Connections {
    var seats: HTTPConnectionSeats
    var closing: [HTTPConnectionSeats.Seat: @Sendable () -> Void] = [:]
    var refused = 0
    /// Nil if the listener was never full.
    var crowdedUntil: Instant?
    var quietUntil: Instant?
  }

  /// Maximum number of connections that are being refused at a time.
  package static let refusedMax = 32
  /// Maximum number of connections accepted at a time (`maxMessagesPerRead` of the listening socket). With NIO's
  /// default of 4, a client that keeps the event loop busy with requests delays new connections by seconds.
  static let acceptedAtOnce = 16

  /// The listener stops accepting at this number of open connections, so that served and refused connections together
  /// never exceed `max + refusedMax`. Further connections wait in the system's queue and use no file descriptor of the
  /// gateway.
  static func acceptedMax(_ max: Int) -> Int { max + refusedMax - acceptedAtOnce + 1 }

  /// How long a listener that was full counts as crowded.
  static let crowded = Nanoseconds.seconds(10)
  /// The minimum time between two log lines about a full listener.
  private static let quiet = Nanoseconds.seconds(60)

  private let listener: String
  private let logger: Logger?
  private let clock: any GatewayClock
  private let connections: Mutex<Connections>

  /// - Parameters:
  ///   - max: maximum number of connections with a seat.
  ///   - listener: its configuration key, for the log.
  init(max: Int, listener: String = "", logger: Logger? = nil, clock: any GatewayClock = SystemClock()) {
    self.listener = listener
    self.logger = logger
    self.clock = clock
    connections = Mutex(Connections(seats: HTTPConnectionSeats(max: max)))
  }

  /// Admits a new connection.
  ///
  /// - Parameter close: closes the connection, from any thread. Called when the connection is evicted.
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

  /// A request has arrived completely. Until it is answered, the connection is evicted only after those that still wait
  /// for their client.
  func asks(_ seat: HTTPConnectionSeats.Seat) {
    connections.withLock { $0.seats.asks(seat) }
  }

  /// The request was refused.
  func isRefused(_ seat: HTTPConnectionSeats.Seat) {
    connections.withLock { $0.seats.isRefused(seat) }
  }

  /// A request was let in. The connection is not evicted until `waits`.
  func works(_ seat: HTTPConnectionSeats.Seat) {
    connections.withLock { $0.seats.works(seat) }
  }

  /// A request was answered with success. The connection waits for its client.
  func waits(_ seat: HTTPConnectionSeats.Seat) {
    connections.withLock { $0.seats.waits(seat) }
  }

  /// Whether the listener was full in the last 10 s. Meanwhile a connection without a good key is closed after one
  /// answer, to make room for new ones.
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

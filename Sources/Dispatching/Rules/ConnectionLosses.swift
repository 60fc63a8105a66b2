// Decides whether the network or one push causes lost connections. Pure.
//
// A provider may close the connection whenever it gets a certain push. Then every try of that push costs its lane a connection, and
// costs every other request on that connection a try. Such a push is recognised by the other requests of its lane: they are
// answered between its losses. If they are not answered, or if more of them are lost than answered, the network or the provider
// is at fault, and every delivery is tried until its deadline.

internal import Runtime

/// Counts the requests of one lane since the start by how they ended.
struct LaneTraffic {
  var answered = 0
  /// Number of requests whose connection was lost.
  var lost = 0
  var inFlight = 0
}

/// Counts the connections that were lost while one delivery was in flight on them.
struct ConnectionLosses {
  /// A delivery is dead after this many losses that speak against it.
  static let most = 5
  /// A delivery waits for its turn (`SuspectTurns`) after this many losses, whether they speak against it or not.
  static let suspectAfter = 2

  private(set) var count = 0
  /// Losses that speak against the delivery: the first one, and each one before which the lane's other requests were answered.
  private var countAgainst = 0
  /// The lane's traffic at the last loss.
  private var before = LaneTraffic()

  /// - Parameter traffic: the lane's, without this loss.
  mutating func note(_ traffic: LaneTraffic) {
    let (answered, lost) = (traffic.answered - before.answered, traffic.lost - before.lost)
    if count == 0 || answered > 0 && answered >= lost { countAgainst += 1 }
    count += 1
    before = traffic
    before.lost += 1
  }

  /// Whether the provider closes the connection because of this push.
  var isAtFault: Bool { countAgainst >= Self.most }
  /// Whether others were answered between two of its losses. Then it says nothing about its lane.
  var isMarked: Bool { countAgainst >= Self.suspectAfter }
  /// Whether it may do so.
  var isSuspect: Bool { count >= Self.suspectAfter }

  /// Minimum wait before a suspect is tried again. It grows with the losses, so that of several suspects that were lost together
  /// the ones not at fault are tried first.
  var shortestWait: Nanoseconds {
    isSuspect ? min(.seconds(2), .seconds(1) + .milliseconds(250) * Int64(count - Self.suspectAfter)) : .zero
  }
}

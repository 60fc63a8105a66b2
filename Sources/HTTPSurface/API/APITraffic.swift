// Limits the requests of one key, or of one peer without a key: their number a second, and their number at a time. A backend
// that loops stops only itself.

internal import Runtime
internal import Settings
internal import Synchronization

/// Counts the requests of each key, and of each peer that needs no key.
final class APITraffic: Sendable {
  /// Whose requests are counted together.
  enum Caller: Hashable, Sendable {
    case key(Int32)
    case peer(IPRange)
    /// All peers that have no meter of their own.
    case otherPeers

    fileprivate var name: String { if case .key = self { "key" } else { "address" } }
    fileprivate var keyID: Int32? { if case .key(let id) = self { id } else { nil } }
  }

  private struct Meter {
    var rate: TokenBucket
    var inFlight = 0
  }

  /// Maximum number of requests in flight for each key.
  static let inFlightMax = 128

  /// Maximum number of peers with a meter of their own. All others share one.
  static let peersMax = 4_096

  private let perSecond: Int
  private let clock: any GatewayClock
  private let meters = Mutex<[Caller: Meter]>([:])

  init(perSecond: Int, clock: any GatewayClock = SystemClock()) {
    self.perSecond = perSecond
    self.clock = clock
  }

  /// Begins a request of a key. The caller must call `end` after it.
  ///
  /// - Throws: 429 if the key has too many requests a second or in flight.
  func begin(_ keyID: Int32) throws(APIProblem) { _ = try begin(.key(keyID)) }

  func end(_ keyID: Int32) { end(.key(keyID)) }

  /// Begins a request. `end` must be called after it with the result.
  ///
  /// - Returns: who it was counted for.
  /// - Throws: 429 if the caller has too many requests a second or in flight.
  func begin(_ caller: Caller) throws(APIProblem) -> Caller {
    let now = clock.now()
    return try meters.withLock { (meters) throws(APIProblem) in
      let caller = Self.metered(caller, &meters, now)
      // As many requests as are allowed in a second may come at once.
      var meter = meters[caller] ?? Meter(rate: TokenBucket(saved: Double(perSecond), perSecond: Double(perSecond)))
      guard meter.inFlight < Self.inFlightMax else {
        throw .tooMany(
          "this \(caller.name) has \(Self.inFlightMax) requests in flight",
          APIRefusal(reason: .rate, keyID: caller.keyID))
      }
      guard meter.rate.consume(now) else {
        throw .tooMany(
          "this \(caller.name) may send \(perSecond) requests a second", APIRefusal(reason: .rate, keyID: caller.keyID))
      }
      meter.inFlight += 1
      meters[caller] = meter
      return caller
    }
  }

  func end(_ caller: Caller) {
    meters.withLock { $0[caller]?.inFlight -= 1 }
  }

  /// The caller, or `otherPeers` if it is a peer and there are too many.
  private static func metered(_ caller: Caller, _ meters: inout [Caller: Meter], _ now: Instant) -> Caller {
    guard case .peer = caller, meters[caller] == nil, meters.count >= peersMax else { return caller }
    // Those that a new meter would replace unchanged.
    meters = meters.filter { entry in
      var rate = entry.value.rate
      return entry.value.inFlight > 0 || !rate.isFull(now)
    }
    return meters.count < peersMax ? caller : .otherPeers
  }
}

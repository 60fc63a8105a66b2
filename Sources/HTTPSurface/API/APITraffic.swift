// What one key may ask of the API: a number of requests a second, and a number at a time. A backend in a loop stops itself, and
// no other.

internal import Runtime
internal import Synchronization

/// Counts the requests of each key.
final class APITraffic: Sendable {
  private struct Meter {
    var rate: TokenBucket
    var inFlight = 0
  }

  /// Requests of one key at a time.
  static let inFlightMax = 128

  private let perSecond: Int
  private let clock: any GatewayClock
  private let meters = Mutex<[Int32: Meter]>([:])

  init(perSecond: Int, clock: any GatewayClock = SystemClock()) {
    self.perSecond = perSecond
    self.clock = clock
  }

  /// Lets a request of a key in, to be ended by `end`.
  ///
  /// - Throws: 429.
  func begin(_ keyID: Int32) throws(APIProblem) {
    let now = clock.now()
    try meters.withLock { (meters) throws(APIProblem) in
      // A second's worth may come at once.
      var meter = meters[keyID] ?? Meter(rate: TokenBucket(saved: Double(perSecond), perSecond: Double(perSecond)))
      guard meter.inFlight < Self.inFlightMax else {
        throw .tooMany(
          "this key has \(Self.inFlightMax) requests under way", APIRefusal(reason: .rate, keyID: keyID))
      }
      guard meter.rate.consume(now) else {
        throw .tooMany("this key may ask \(perSecond) times a second", APIRefusal(reason: .rate, keyID: keyID))
      }
      meter.inFlight += 1
      meters[keyID] = meter
    }
  }

  func end(_ keyID: Int32) {
    meters.withLock { $0[keyID]?.inFlight -= 1 }
  }
}

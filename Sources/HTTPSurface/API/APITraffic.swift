// Limits the requests of one key: their number a second, and their number at a time. A backend that loops stops only
// itself.

internal import Runtime
internal import Synchronization

/// Counts the requests of each key.
final class APITraffic: Sendable {
  private struct Meter {
    var rate: TokenBucket
    var inFlight = 0
  }

  /// Maximum number of requests in flight for each key.
  static let inFlightMax = 128

  private let perSecond: Int
  private let clock: any GatewayClock
  private let meters = Mutex<[Int32: Meter]>([:])

  init(perSecond: Int, clock: any GatewayClock = SystemClock()) {
    self.perSecond = perSecond
    self.clock = clock
  }

  /// Begins a request of a key. The caller must call `end` after it.
  ///
  /// - Throws: 429 if the key has too many requests a second or in flight.
  func begin(_ keyID: Int32) throws(APIProblem) {
    let now = clock.now()
    try meters.withLock { (meters) throws(APIProblem) in
      // As many requests as are allowed in a second may come at once.
      var meter = meters[keyID] ?? Meter(rate: TokenBucket(saved: Double(perSecond), perSecond: Double(perSecond)))
      guard meter.inFlight < Self.inFlightMax else {
        throw .tooMany(
          "this key has \(Self.inFlightMax) requests in flight", APIRefusal(reason: .rate, keyID: keyID))
      }
      guard meter.rate.consume(now) else {
        throw .tooMany("this key may send \(perSecond) requests a second", APIRefusal(reason: .rate, keyID: keyID))
      }
      meter.inFlight += 1
      meters[keyID] = meter
    }
  }

  func end(_ keyID: Int32) {
    meters.withLock { $0[keyID]?.inFlight -= 1 }
  }
}

// Which deliveries of a lane may be sent to each of several services behind it, and how many. Pure.
//
// Behind a lane of web push are the push services of all browsers. One that takes requests and never answers must not take the
// room of the others. So no service has more than a quarter of the lane's room, whether it answers or not: a service that is only
// slow would fill the room as well. What finds no place waits aside and takes no room.
//
// A service that rests takes no push, and each that asks costs as much as one that is sent. So while it rests, deliveries wait here.
// One at a time asks, at the end of the rest and every half second, because a rest may end early. The others come back one after
// the other: so many may wait that they must not come together.

internal import Providers
internal import Runtime

/// Counts the deliveries of one lane that are with each service, and remembers which services rest.
struct ServicePlaces {
  /// A service has at most this part of the room. Below a quarter, the streams of its connections would not be used.
  static let parts = 4

  /// How long the others wait while one delivery asks a service that rests.
  static let askInterval = Nanoseconds.milliseconds(500)
  /// The time between two deliveries that come back after a rest.
  static let gap = Nanoseconds.milliseconds(1)
  /// From this number of services that rest on, those are forgotten whose rest is over.
  static let restsMax = 64

  private struct Rest {
    var until: Instant
    var reason: String
    /// When the next delivery may ask.
    var asksAt: Instant
    /// Number of deliveries that were told to wait since the last one asked.
    var waiting: Int64 = 0
  }

  /// Only services that have any.
  private var counts: [WebPushOrigin: Int] = [:]
  /// The services that rest, or that have rested and not answered since.
  private var rests: [WebPushOrigin: Rest] = [:]

  /// Whether one more delivery may be sent to the service.
  ///
  /// - Parameter room: how many deliveries the lane may hold that do not wait aside.
  func isFree(at service: WebPushOrigin, ofRoom room: Int) -> Bool {
    counts[service, default: 0] < max(1, room / Self.parts)
  }

  /// How long and why a delivery to the service must wait for the end of its rest; nil if it need not.
  mutating func wait(for service: WebPushOrigin, _ now: Instant) -> (time: Nanoseconds, reason: String)? {
    guard var rest = rests[service], rest.asksAt > now else { return nil }
    let place = rest.waiting % (Self.askInterval.count / Self.gap.count)
    rest.waiting += 1
    rests[service] = rest
    return (max(rest.until, rest.asksAt) - now + Nanoseconds(Self.gap.count * place), rest.reason)
  }

  mutating func didSend(to service: WebPushOrigin, _ now: Instant) {
    counts[service, default: 0] += 1
    if rests[service] != nil {
      rests[service]?.asksAt = now + Self.askInterval
      rests[service]?.waiting = 0
    }
  }

  mutating func didReturn(from service: WebPushOrigin, _ result: PushResult, _ now: Instant) {
    guard let count = counts[service] else { preconditionFailure("a delivery returned from a service that had none") }
    counts[service] = count > 1 ? count - 1 : nil
    switch result.outcome {
    case .deferred(let reason, _):
      if let until = result.serviceRestsUntil {
        if rests.count >= Self.restsMax { rests = rests.filter { $0.value.until > now } }
        rests[service] = Rest(until: until, reason: reason, asksAt: min(until, now + Self.askInterval))
      } else {
        // It was a matter of this one delivery.
        rests[service]?.asksAt = now
      }
    case .accepted, .tokenInvalid, .rejected, .throttled: rests[service] = nil
    case .unavailable, .unauthorized, .refused, .unknown, .expired: break
    }
  }
}

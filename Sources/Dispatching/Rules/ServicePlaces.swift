// How many deliveries of a lane may be with each of several services behind it. Pure.
//
// Behind a lane of web push are the push services of all browsers. One that takes requests and never answers must not take the
// room of the others. So no service has more than a quarter of the lane's room, whether it answers or not: a service that is only
// slow would fill the room as well. What finds no place waits aside and takes no room.

internal import Providers

/// Counts the deliveries of one lane that are with each service.
struct ServicePlaces {
  /// A service has at most this part of the room. Below a quarter, the streams of its connections would not be used.
  static let parts = 4

  /// Only services that have any.
  private var counts: [WebPushOrigin: Int] = [:]

  /// Whether one more delivery may be sent to the service.
  ///
  /// - Parameter room: how many deliveries the lane may hold that do not wait aside.
  func isFree(at service: WebPushOrigin, ofRoom room: Int) -> Bool {
    counts[service, default: 0] < max(1, room / Self.parts)
  }

  mutating func didSend(to service: WebPushOrigin) { counts[service, default: 0] += 1 }

  mutating func didReturn(from service: WebPushOrigin) {
    guard let count = counts[service] else { preconditionFailure("a delivery returned from a service that had none") }
    counts[service] = count > 1 ? count - 1 : nil
  }
}

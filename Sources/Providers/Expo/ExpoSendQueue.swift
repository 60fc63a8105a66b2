// Divides messages into requests. No I/O.
//
// A request is made as soon as another may be under way. With few messages waiting it is small and is sent at once. While the
// maximum number of requests is under way, messages queue up, and the next request contains as many as allowed.
//
// A request that Expo refuses as a whole returns to the queue in parts. Every part is smaller than the request. Splitting therefore
// ends, with single messages at the latest, whatever Expo answers.
//
// A request may also fail without a refusal: it hangs, or Expo fails at it. One of its messages may be the cause, but nobody knows
// which. So repeats do not travel with first tries, and divide themselves among two dozen requests. They have places of their own, and what
// hangs has no place any more. A first try takes its place for a second at most: Expo may be slow, and the next one must not wait for
// an answer. A token whose request fails although it was alone is remembered (`ExpoSuspects`), and goes alone, the next message when the
// one before has an answer or hangs. One whose requests fail although others work is sent last, one request at a time, and beside few
// of other such tokens. More messages to it are not taken while it has one.

public import Runtime

/// The waiting messages, and the batches into which they are divided.
public struct ExpoSendQueue {
  let messagesMax: Int
  let requestsMax: Int
  /// The current maximum number of messages in a request. Less than `messagesMax` after Expo refused a request as too long.
  private(set) var messagesAtOnce: Int
  private var waiting: [PushRequest] = []
  /// Messages that were sent before, by whichever replica.
  private var repeats: [PushRequest] = []
  /// Parts of refused requests. They are sent first.
  private var parts: [[PushRequest]] = []
  /// Messages that travel alone.
  private var alone: [PushRequest] = []
  private var suspects = ExpoSuspects()
  private let placeTime: Nanoseconds

  /// Whom a request keeps waiting while it is under way.
  private enum Place: Equatable {
    /// Other first tries, until this time.
    case first(until: Instant)
    case again
    case suspect
    /// Nobody any more.
    case hanging
  }

  /// A request under way.
  private struct UnderWay {
    /// Retained, because it identifies the request. Its tag does not: a ring that is handed on leaves its tag to the next one.
    let first: PushRequest
    let travelsAlone: Bool
    var place: Place

    var suspectedToken: ArraySlice<UInt8>? { travelsAlone ? first.token : nil }
  }

  private var underWay: [ObjectIdentifier: UnderWay] = [:]
  /// Among how many requests repeats are divided, about. Nobody waits for more than one that hangs, and for a short line of others.
  private static let repeatParts = 24
  var requestsUnderWay: Int { underWay.count }

  /// - Parameters:
  ///   - messagesMax: maximum number of messages in a request.
  ///   - requestsMax: maximum number of requests of first tries under way; of repeats twice as many.
  ///   - placeTime: how long a request of first tries counts.
  public init(messagesMax: Int, requestsMax: Int, placeTime: Nanoseconds = .seconds(1)) {
    self.messagesMax = messagesMax
    self.placeTime = placeTime
    self.requestsMax = requestsMax
    messagesAtOnce = messagesMax
  }

  public var isEmpty: Bool { count == 0 }
  /// Number of waiting messages.
  public var count: Int { waiting.count + repeats.count + alone.count + parts.reduce(0) { $0 + $1.count } }

  /// When the first waiting message expires; nil when none waits.
  var earliestDeadline: Instant? {
    ([waiting, repeats, alone] + parts).compactMap { $0.lazy.map(\.deadline).min() }.min()
  }

  /// Returns those that are not taken, because their tokens are suspects that have a request already.
  public mutating func append(_ requests: [PushRequest], _ now: Instant) -> [PushRequest] {
    let isRemembering = suspects.isRemembering(now)
    var busy: [PushRequest] = []
    for request in requests {
      switch isRemembering ? suspects.treatment(of: request.token) : .any {
      case .any where request.isRepeat: repeats.append(request)
      case .any: waiting.append(request)
      case .last where hasMessage(to: request.token):
        busy.append(request)
      case .alone, .last: alone.append(request)
      }
    }
    return busy
  }

  /// Returns the messages of a refused request to the queue, divided by project. Each message that Expo did not name is sent in a
  /// request of its own. If the projects do not divide the messages, every message is sent in a request of its own.
  mutating func append(_ batch: [PushRequest], splitBy projects: [[[UInt8]]]) {
    var groups: [[PushRequest]] = []
    var left = batch
    for tokens in projects {
      let tokens = Set(tokens.lazy.map { $0[...] })
      let group = left.filter { tokens.contains($0.token) }
      guard !group.isEmpty else { continue }
      left.removeAll { tokens.contains($0.token) }
      groups.append(group)
    }
    if groups.count == 1, left.isEmpty { (groups, left) = ([], batch) }
    parts.append(contentsOf: groups)
    parts.append(contentsOf: left.map { [$0] })
  }

  /// Returns the messages of a request that was refused as a whole to the queue, in two halves.
  mutating func append(halvesOf batch: [PushRequest]) {
    let half = (batch.count + 1) / 2
    for part in [batch[..<half], batch[half...]] where !part.isEmpty { parts.append(Array(part)) }
  }

  /// A request with this number of messages was too long for Expo. From now on requests are shorter.
  mutating func sendFewer(than count: Int) {
    messagesAtOnce = Swift.min(messagesAtOnce, Swift.max(1, (count + 1) / 2))
  }

  /// Expo took a request. If it had the current maximum of messages, the maximum grows by one.
  public mutating func didTake(_ batch: [PushRequest], _ now: Instant) {
    if batch.count >= messagesAtOnce { messagesAtOnce = Swift.min(messagesMax, messagesAtOnce + 1) }
    suspects.didWork(batch.lazy.map(\.token), now)
  }

  /// A request hung, or Expo failed at it.
  ///
  /// - Parameter isUnderWay: whether it still waits for an answer.
  public mutating func didFail(_ batch: [PushRequest], sentAt: Instant, isUnderWay: Bool = false, _ now: Instant) {
    suspects.didFail(batch.map(\.token), sentAt: sentAt, now)
    let id = ObjectIdentifier(batch[0])
    // Suspects wait for each other to the end.
    if isUnderWay, underWay[id]?.place != .suspect { underWay[id]?.place = .hanging }
  }

  /// Whether this is the request of a suspect: its failure says nothing about others.
  public func isSuspect(_ batch: [PushRequest]) -> Bool {
    batch.count == 1 && suspects.treatment(of: batch[0].token) == .last
  }

  /// The messages of the next request; nil if none may be made now.
  public mutating func next(_ now: Instant) -> [PushRequest]? {
    guard requestsUnderWay < placesMax else { return nil }
    if endsOfPlaces(after: now).count < requestsMax,
      let batch = parts.popLast() ?? Self.take(messagesAtOnce, of: &waiting)
    {
      return begin(batch, .first(until: now + placeTime))
    }
    // The last places are for first tries: if Expo is slow, they hang, too, and must not be ended for repeats.
    guard requestsUnderWay < placesMax - requestsMax else { return nil }
    if count(.again) < 2 * requestsMax {
      if let message = nextAlone(isSuspect: false) { return begin([message], .again, alone: true) }
      let share = min(messagesAtOnce, max(1, repeats.count / Self.repeatParts))
      if let batch = Self.take(share, of: &repeats) { return begin(batch, .again) }
    }
    guard count(.suspect) < max(1, requestsMax / 2), let message = nextAlone(isSuspect: true) else { return nil }
    return begin([message], .suspect, alone: true)
  }

  private mutating func begin(_ batch: [PushRequest], _ place: Place, alone: Bool = false) -> [PushRequest] {
    underWay[ObjectIdentifier(batch[0])] = UnderWay(first: batch[0], travelsAlone: alone, place: place)
    return batch
  }

  private func count(_ place: Place) -> Int { underWay.values.count { $0.place == place } }

  private func endsOfPlaces(after now: Instant) -> [Instant] {
    underWay.values.compactMap { if case .first(let end) = $0.place, end > now { end } else { nil } }
  }

  /// When the next request gives up its place; nil if nothing waits for one. Never in the past, also while no request may be made.
  func nextPlaceAt(after now: Instant) -> Instant? {
    isEmpty || requestsUnderWay >= placesMax ? nil : endsOfPlaces(after: now).min()
  }

  /// Maximum number of requests under way: of first tries, of repeats, and of those that have no place any more.
  public var placesMax: Int { 5 * requestsMax }

  /// Whether first tries wait only because so many requests are under way. The youngest that hangs is ended then: if Expo is only slow, its
  /// answer is the farthest away.
  public var isFull: Bool { !waiting.isEmpty && requestsUnderWay >= placesMax }

  private static func take(_ count: Int, of messages: inout [PushRequest]) -> [PushRequest]? {
    guard !messages.isEmpty else { return nil }
    let batch = Array(messages.prefix(count))
    messages.removeFirst(batch.count)
    return batch
  }

  /// The message to the token that failed least often, and has no request that it must wait for.
  private mutating func nextAlone(isSuspect: Bool) -> PushRequest? {
    guard !alone.isEmpty else { return nil }
    let busy = underWay.values.filter { isSuspect || $0.place != .hanging }.compactMap(\.suspectedToken)
    var choice: (index: Int, strikes: Int)?
    for (index, request) in alone.enumerated() where !busy.contains(request.token) {
      let strikes = suspects.strikes(of: request.token)
      guard (strikes > 0) == isSuspect, choice.map({ strikes < $0.strikes }) ?? true else { continue }
      choice = (index, strikes)
    }
    return choice.map { alone.remove(at: $0.index) }
  }

  private func hasMessage(to suspect: ArraySlice<UInt8>) -> Bool {
    underWay.values.contains { $0.suspectedToken == suspect } || alone.contains { $0.token == suspect }
  }

  /// Called when a request returned by `next` has ended.
  public mutating func finish(_ batch: [PushRequest]) {
    let ended = underWay.removeValue(forKey: ObjectIdentifier(batch[0]))
    precondition(ended != nil, "only a request that was made can end")
  }

  /// Removes and returns the waiting messages whose deadline has passed.
  public mutating func removeExpired(at now: Instant) -> [PushRequest] {
    guard let earliest = earliestDeadline, earliest <= now else { return [] }
    return remove { $0.deadline <= now }
  }

  /// Removes and returns the waiting messages whose permit has lapsed.
  mutating func removeWithheld(at now: Instant) -> [PushRequest] {
    remove { $0.permit.map { !$0.allows(now) } ?? false }
  }

  /// Removes and returns the waiting messages with these tags.
  public mutating func remove(_ tags: Set<UInt64>) -> [PushRequest] { remove { tags.contains($0.tag) } }

  /// Removes and returns all waiting messages.
  mutating func removeAll() -> [PushRequest] { remove { _ in true } }

  private mutating func remove(_ isRemoved: (PushRequest) -> Bool) -> [PushRequest] {
    let removed = (waiting + repeats + alone).filter(isRemoved) + parts.joined().filter(isRemoved)
    waiting.removeAll(where: isRemoved)
    repeats.removeAll(where: isRemoved)
    alone.removeAll(where: isRemoved)
    parts = parts.map { $0.filter { !isRemoved($0) } }.filter { !$0.isEmpty }
    return removed
  }
}

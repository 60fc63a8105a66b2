// Taking back, after a crash or a fail-over of the server, whatever this gateway has. Pure.

internal import Queue
internal import Runtime

/// Asks for all keys, part by part; begins anew after a loss of the connection, since that may have been another crash.
struct Reclaiming {
  enum Call {
    case reclaim([DeliveryKey])
    case confirm
  }

  private let partMax: Int
  private let retryInterval: Nanoseconds
  private var keys: [DeliveryKey]?
  private var position = 0
  private var part: [DeliveryKey] = []
  private(set) var isAsking = false
  /// The answer under way is to a question of before the new start.
  private var isAnswerOld = false
  private var notBefore = Instant(nanoseconds: .min)

  init(partMax: Int, retryInterval: Nanoseconds) {
    self.partMax = partMax
    self.retryInterval = retryInterval
  }

  /// When the next call may be made; distant future while one is under way.
  var due: Instant { isAsking ? .distantFuture : notBefore }

  /// The next call.
  ///
  /// - Parameters:
  ///   - confirms: whether the end is to be confirmed.
  ///   - allKeys: of everything held, being written or remembered; asked for at the start only.
  /// - Returns: nil when everything is done.
  mutating func call(confirms: Bool, allKeys: () -> [DeliveryKey]) -> Call? {
    let keys = keys ?? allKeys()
    self.keys = keys
    if position < keys.count {
      part = Array(keys[position..<min(position + partMax, keys.count)])
      isAsking = true
      return .reclaim(part)
    }
    guard confirms else {
      restart()
      return nil
    }
    part = []
    isAsking = true
    return .confirm
  }

  /// The part under way was answered; returns its keys, none if they are asked for anew.
  mutating func didReclaim() -> [DeliveryKey] {
    guard finish() else { return [] }
    position += part.count
    return part
  }

  /// The confirmation was answered; returns whether everything is done.
  mutating func didConfirm() -> Bool {
    guard finish() else { return false }
    restart()
    return true
  }

  mutating func didFail(_ now: Instant) {
    _ = finish()
    notBefore = now + retryInterval
  }

  /// From the start, whenever that comes.
  mutating func restart() {
    keys = nil
    position = 0
    isAnswerOld = isAsking
    notBefore = Instant(nanoseconds: .min)
  }

  /// Whether the answer that came is wanted still.
  private mutating func finish() -> Bool {
    defer { isAnswerOld = false }
    isAsking = false
    return !isAnswerOld
  }
}

// Reclaims everything this gateway has after a crash or a fail-over of the server. Pure.

internal import Queue
internal import Runtime

/// Reclaims all keys in parts. It starts again after a loss of the connection, because that may have been another crash.
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
  /// Whether the call under way was sent before the new start.
  private var isAnswerOld = false
  private var notBefore = Instant(nanoseconds: .min)

  init(partMax: Int, retryInterval: Nanoseconds) {
    self.partMax = partMax
    self.retryInterval = retryInterval
  }

  /// When the next call may be sent; distant future while one is under way.
  var due: Instant { isAsking ? .distantFuture : notBefore }

  /// The next call.
  ///
  /// - Parameters:
  ///   - confirms: whether to confirm the end.
  ///   - allKeys: the keys of everything held, being written or remembered. Called at the start only.
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

  /// The part under way was answered. Returns its keys; none if reclaiming starts again.
  mutating func didReclaim() -> [DeliveryKey] {
    guard finish() else { return [] }
    position += part.count
    return part
  }

  /// The confirmation was answered. Returns whether everything is done.
  mutating func didConfirm() -> Bool {
    guard finish() else { return false }
    restart()
    return true
  }

  mutating func didFail(_ now: Instant) {
    _ = finish()
    notBefore = now + retryInterval
  }

  /// Starts again at the next call.
  mutating func restart() {
    keys = nil
    position = 0
    isAnswerOld = isAsking
    notBefore = Instant(nanoseconds: .min)
  }

  /// Whether the answer that came is still valid.
  private mutating func finish() -> Bool {
    defer { isAnswerOld = false }
    isAsking = false
    return !isAnswerOld
  }
}

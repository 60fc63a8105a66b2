// The pushes that providers really accepted, whatever the replicas were told.

import Providers
import PushModel
import Queue

/// A push that a provider accepted.
final class Acceptance {
  let key: DeliveryKey
  let kind: PushKind
  let at: VirtualTime
  let life: Life
  /// The gateway that sent it.
  let gateway: Int32?
  /// Whether the replica was told that it was accepted.
  var isCertain = false

  init(key: DeliveryKey, kind: PushKind, at: VirtualTime, life: Life, gateway: Int32?) {
    self.key = key
    self.kind = kind
    self.at = at
    self.life = life
    self.gateway = gateway
  }
}

/// Every push that was accepted.
final class PhoneLog {
  private var log: [DeliveryKey: [Acceptance]] = [:]
  private(set) var count = 0

  func note(_ acceptance: Acceptance) {
    log[acceptance.key, default: []].append(acceptance)
    count += 1
  }

  subscript(key: DeliveryKey) -> [Acceptance] { log[key] ?? [] }
}

extension PushRequest {
  /// The delivery's key, read from its UUID: the outbox id fills the first 60 free bits and the next four, the number the last 32.
  var key: DeliveryKey {
    let low60 = (deliveryID.high >> 16) << 12 | deliveryID.high & 0xFFF
    let top = (deliveryID.low >> 56) & 0xF
    return DeliveryKey(
      outboxID: Int64(bitPattern: top << 60 | low60),
      pushNumber: Int32(bitPattern: UInt32(truncatingIfNeeded: deliveryID.low)))
  }
}

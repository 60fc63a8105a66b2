// The pushes that providers really accepted, whatever the replicas were told.

import MemoryOutbox
import Providers
import PushModel
import Queue

/// A push that a provider accepted.
final class Acceptance {
  let key: DeliveryKey
  let kind: PushKind
  let channel: MemoryChannel
  let userID: String
  let at: VirtualTime
  let life: Life
  /// The gateway that sent it.
  let gateway: Int32?
  /// Whether the replica was told that it was accepted.
  var isCertain = false

  init(_ expected: MemoryDelivery, kind: PushKind, at: VirtualTime, life: Life, gateway: Int32?) {
    key = expected.key
    self.kind = kind
    channel = expected.channel
    userID = expected.userID
    self.at = at
    self.life = life
    self.gateway = gateway
  }
}

/// Every push that was accepted.
final class PhoneLog {
  /// What a request shows of its delivery. Other calls may have the same numbers, but not the same deadline.
  private struct Face: Hashable {
    var numbers: DeliveryKey
    var expiresAtMilliseconds: Int64
  }

  private var claimed: [Face: MemoryDelivery] = [:]
  private(set) var log: [DeliveryKey: [Acceptance]] = [:]
  private(set) var count = 0

  /// A delivery was claimed, and may be sent. Returns the key of one that cannot be told from it: a crash lost that one, and it was made
  /// again.
  func expect(_ delivery: MemoryDelivery) -> DeliveryKey? {
    let numbers = DeliveryKey(outboxID: delivery.key.outboxID, pushNumber: delivery.key.pushNumber)
    let face = Face(numbers: numbers, expiresAtMilliseconds: delivery.deadlineAt / 1000)
    guard let former = claimed.updateValue(delivery, forKey: face), former.key != delivery.key else { return nil }
    return former.key
  }

  /// The delivery of a request, as it was last claimed.
  func delivery(of request: PushRequest) -> MemoryDelivery {
    let face = Face(numbers: request.numbers, expiresAtMilliseconds: request.expiresAtMilliseconds)
    guard let delivery = claimed[face] else { preconditionFailure("a push is sent that was never claimed") }
    return delivery
  }

  func note(_ acceptance: Acceptance) {
    log[acceptance.key, default: []].append(acceptance)
    count += 1
  }

  subscript(key: DeliveryKey) -> [Acceptance] { log[key] ?? [] }
}

extension PushRequest {
  /// The delivery's numbers, read from its UUID: the outbox id fills the first 60 free bits and the next four, the push number the
  /// last 32.
  var numbers: DeliveryKey {
    let low60 = (deliveryID.high >> 16) << 12 | deliveryID.high & 0xFFF
    let top = (deliveryID.low >> 56) & 0xF
    return DeliveryKey(
      outboxID: Int64(bitPattern: top << 60 | low60),
      pushNumber: Int32(bitPattern: UInt32(truncatingIfNeeded: deliveryID.low)))
  }
}

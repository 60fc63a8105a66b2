// The log line about the end of a delivery: one for each device, at info, whatever the outcome (docs/logging.md).

internal import Logging
internal import Providers
internal import PushModel
internal import Queue
internal import Runtime

extension Logger.Metadata {
  /// The metadata of every line about a delivery.
  init(_ delivery: Delivery, _ lane: LaneName) {
    self = [
      "call_id": "\(String(decoding: delivery.callID, as: UTF8.self))",
      "outbox_id": .stringConvertible(delivery.lease.outboxID), "n": .stringConvertible(delivery.lease.pushNumber),
      "app": "\(lane.app)", "provider": "\(lane.provider.rawValue)", "kind": "\(delivery.kind.word)",
      "device": "\(delivery.maskedToken)",
    ]
    if let id = delivery.traceID { self["trace_id"] = "\(id)" }
  }

  /// The further metadata of the line about the end of a delivery.
  mutating func note(_ outcome: DeliveryOutcome, _ reason: String?, _ entry: HeldDelivery) {
    self["outcome"] = "\(outcome.word)"
    self["attempts"] = .stringConvertible(entry.attempts)
    if let reason { self["reason"] = "\(reason)" }
    if let status = entry.result?.status, status > 0 { self["status"] = .stringConvertible(status) }
    if let answeredAt = entry.result?.answeredAt {
      let milliseconds = Double((answeredAt - entry.delivery.enqueuedAt).microseconds) / 1000
      self["ms"] = .stringConvertible(Swift.max(0, milliseconds))
    }
  }
}

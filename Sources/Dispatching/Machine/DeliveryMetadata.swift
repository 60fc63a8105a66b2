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

extension Delivery {
  /// The trace id of its call; nil if the call has none.
  var traceID: String? {
    guard let traceparent, traceparent.count >= 35 else { return nil }
    return String(decoding: traceparent.dropFirst(3).prefix(32), as: UTF8.self)
  }

  /// The token as `push.delivery_history.device` shows it: its first four and last four characters.
  var maskedToken: String {
    let token = String(decoding: token, as: UTF8.self)
    return token.count > 12 ? "\(token.prefix(4))…\(token.suffix(4))" : "…"
  }
}

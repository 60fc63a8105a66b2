// Checks what follows from ends of calls and from declines: who is told, and how often.

import MemoryOutbox
import PushModel
import Queue

/// The rules of cancels, missed calls and declines.
struct EndChecker {
  private static let cancels = "A phone that may ring gets one cancel when it must stop, and no other phone gets one."
  private static let invites = "No token is rung twice in a call."
  private static let missed = "Each user whom a call has missed is told of it once, and nobody else is."

  /// Pushes that were checked when they were made.
  private var seen: Set<DeliveryKey> = []
  /// The calls of notes that have not been taken.
  private var noted: [Int64: Int64] = [:]

  /// A statement was committed.
  mutating func didCommit(
    _ touched: [DeliveryKey], notes: [Int64], _ outbox: MemoryOutbox, violate: (String, String) -> Void
  ) {
    for key in touched {
      guard let row = outbox.deliveries[key], let call = outbox.calls[key.outboxID] else { continue }
      switch PushKind(rawValue: row.kind) {
      case .invite where seen.insert(key).inserted:
        let there = outbox.pushes(of: call).count { $0.kind == .invite && $0.channel == row.channel }
        if there > 1 { violate(Self.invites, key.story) }
      case .cancel where seen.insert(key).inserted: checkCancel(row, call, outbox, violate)
      case .missedCall where seen.insert(key).inserted: checkMissedCall(row, call, outbox, violate)
      default: break
      }
    }
    for number in notes {
      if let note = outbox.notes[number] {
        noted[number] = note.outboxID
      } else if let id = noted.removeValue(forKey: number), let call = outbox.calls[id], call.state == .ringing,
        !call.declined.isEmpty, outbox.hasDeclined(call)
      {
        violate("The last decline ends the call.", "outbox \(id)")
      }
    }
  }

  private func checkCancel(
    _ row: MemoryDelivery, _ call: MemoryCall, _ outbox: MemoryOutbox, _ violate: (String, String) -> Void
  ) {
    let there = outbox.pushes(of: call).filter { $0.channel == row.channel }
    if there.count(where: { $0.kind == .cancel }) > 1 { violate(Self.cancels, "\(row.key.story) is the second one") }
    let mayRing = there.contains { $0.kind == .invite && $0.mayHaveArrived && !call.rings(for: $0.userID) }
    if !mayRing { violate(Self.cancels, "\(row.key.story) is for a phone that does not ring, or may ring") }
  }

  private func checkMissedCall(
    _ row: MemoryDelivery, _ call: MemoryCall, _ outbox: MemoryOutbox, _ violate: (String, String) -> Void
  ) {
    let told = outbox.pushes(of: call).filter {
      $0.kind == .missedCall && $0.userID == row.userID && $0.reason != "SaidByCancel"
    }
    if told.count > 1 { violate(Self.missed, "\(row.key.story) is the second one") }
    let isShown = outbox.pushes(of: call).contains { push in
      guard push.kind == .cancel, push.channel == row.channel else { return false }
      return outbox.deliveries[push.key].map { !$0.isPaired } ?? !push.hasShownNothing
    }
    if isShown && told.count == 1 { violate(Self.missed, "\(row.key.story) follows a cancel that shows it, too") }
    if call.state == .answered || call.state == .ringing || call.declined[row.userID] != nil {
      violate(Self.missed, "\(row.key.story) is about a call that was not missed")
    }
  }

  /// The run is over.
  ///
  /// - Parameters:
  ///   - accepted: what providers accepted.
  ///   - lost: deliveries with changes that a crash or a fail-over lost: the database may not know that they were sent.
  func didEnd(
    _ outbox: MemoryOutbox, accepted: [DeliveryKey: [Acceptance]], lost: Set<DeliveryKey>,
    violate: (String, String) -> Void
  ) {
    for call in outbox.calls.values.sorted(by: { $0.id < $1.id }) {
      let pushes = outbox.pushes(of: call)
      let cancelled = Set(pushes.filter { $0.kind == .cancel }.map(\.channel))
      for push in pushes where push.kind == .invite && !lost.contains(push.key) && accepted[push.key] != nil {
        // A missed call rings no more.
        guard call.state != .missed, !call.rings(for: push.userID), push.userID != call.answeredBy else { continue }
        // An earlier try may have arrived whose answer was lost; the last one was refused.
        guard outbox.lanes[push.channel.lane]?.provider != "apns", push.mayHaveArrived || push.outcome != .dead
        else { continue }
        if !cancelled.contains(push.channel) { violate(Self.cancels, "\(push.key.story) has none") }
      }
      guard call.isMissed else { continue }
      let told = Set(pushes.filter { $0.kind == .missedCall }.map(\.userID))
      for recipient in call.recipients where recipient.missedCall != nil && call.declined[recipient.userID] == nil {
        if !told.contains(recipient.userID) { violate(Self.missed, "outbox \(call.id): \(recipient.userID) is not") }
      }
    }
  }
}

extension MemoryCall {
  /// Whether its users are told that they have missed it. A message is created as ended, without a reason.
  fileprivate var isMissed: Bool {
    switch state {
    case .missed: true
    case .ended: endReason != nil && endReason != "declined" && endReason != "busy"
    case .ringing, .answered: false
    }
  }
}

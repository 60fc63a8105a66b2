// Calls: enqueueing, ending, and the consequences of an end.

public import PushModel
internal import Queue

extension MemoryOutbox {
  /// First push numbers of a call, by purpose.
  enum FirstNumber {
    static let cancel: Int32 = 10_000
    static let missedCall: Int32 = 20_000
  }

  /// A backend enqueues a call: an invite to each recipient's first channel. Durable.
  ///
  /// - Parameter ring: the ring window in microseconds.
  /// - Returns: `push.outbox.id`.
  public mutating func enqueueCall(
    app: String, callID: String, kind: String = "incoming_call", payload: String, recipients: [MemoryRecipient],
    ring: Int64, at now: DatabaseTime
  ) -> Int64 {
    let id = enqueue(
      app: app, callID: callID, kind: kind, payload: payload, recipients: recipients, life: ring, state: .ringing,
      at: now)
    for recipient in recipients {
      guard let channel = recipient.channels.first else { continue }
      invite(id, channel, recipient.userID, at: now)
    }
    ringBell()
    commit(isDurable: true)
    return id
  }

  /// A backend enqueues a message: a visible push on each recipient's channel for messages. Durable.
  ///
  /// - Parameters:
  ///   - life: its time to live in microseconds.
  ///   - kindCode: a code other than that of a notification, as a newer version might write.
  public mutating func enqueueNotification(
    app: String, callID: String, payload: String, recipients: [MemoryRecipient], life: Int64,
    kindCode: UInt8 = PushKind.notification.rawValue, at now: DatabaseTime
  ) -> Int64 {
    let id = enqueue(
      app: app, callID: callID, kind: "message", payload: payload, recipients: recipients, life: life, state: .ended,
      at: now)
    var pushNumber: Int32 = 0
    for recipient in recipients {
      guard let channel = recipient.missedCall else { continue }
      insert(id, pushNumber, .notification, channel, recipient.userID, until: now + life, at: now)
      deliveries[DeliveryKey(outboxID: id, pushNumber: pushNumber)]?.kind = kindCode
      pushNumber += 1
    }
    ringBell()
    commit(isDurable: true)
    return id
  }

  private mutating func enqueue(
    app: String, callID: String, kind: String, payload: String, recipients: [MemoryRecipient], life: Int64,
    state: MemoryCall.State, at now: DatabaseTime
  ) -> Int64 {
    let id = nextCall
    nextCall += 1
    calls[id] = MemoryCall(
      id: id, app: app, kind: kind, callID: callID, payload: payload, recipients: recipients, state: state,
      createdAt: now, deadlineAt: now + life)
    return id
  }

  /// One more invite of a call, for as long as it may ring.
  private mutating func invite(_ outboxID: Int64, _ channel: MemoryChannel, _ userID: String, at now: DatabaseTime) {
    guard var call = calls[outboxID] else { return }
    insert(outboxID, call.invites, .invite, channel, userID, until: call.deadlineAt, at: now)
    call.invites += 1
    calls[outboxID] = call
  }

  private mutating func insert(
    _ outboxID: Int64, _ pushNumber: Int32, _ kind: PushKind, _ channel: MemoryChannel, _ userID: String,
    until deadline: DatabaseTime, at now: DatabaseTime
  ) {
    let key = DeliveryKey(outboxID: outboxID, pushNumber: pushNumber)
    deliveries[key] = MemoryDelivery(
      key: key, kind: kind.rawValue, lane: channel.lane, userID: userID, token: channel.token, createdAt: now,
      dueAt: now, deadlineAt: deadline)
  }

  // MARK: - The end

  /// `push.answer_call`. Durable. Returns false if the call had ended.
  @discardableResult
  public mutating func answer(_ outboxID: Int64, by userID: String?, at now: DatabaseTime) -> Bool {
    let hasEnded = end(outboxID, .answered, reason: "answered", by: userID, at: now)
    commit(isDurable: true)
    return hasEnded
  }

  /// `push.end_call`: without an answer; `declined` and `busy` leave no missed call. Durable. Returns false if it had ended.
  @discardableResult
  public mutating func end(_ outboxID: Int64, reason: String = "ended", at now: DatabaseTime) -> Bool {
    let hasEnded = end(outboxID, .ended, reason: reason, by: nil, at: now)
    commit(isDurable: true)
    return hasEnded
  }

  /// Changes the call's state, once, and does the rest in the same transaction.
  mutating func end(
    _ outboxID: Int64, _ state: MemoryCall.State, reason: String, by userID: String?, at now: DatabaseTime
  ) -> Bool {
    guard var call = calls[outboxID], call.state == .ringing else { return false }
    call.state = state
    call.endReason = reason
    call.answeredBy = userID
    calls[outboxID] = call
    voidUnsent([outboxID], at: now)
    let told = cancelInvites(call, at: now)
    let made = told.count + announceMissed(call, told: told, at: now)
    // Gateways look up the calls that they hold in memory. After the deadline they drop them on their own.
    let isHeld = inviteKeys(of: call).contains { deliveries[$0].map { $0.deadlineAt > now } ?? false }
    if isHeld { notifications.append(.ended(outboxID)) }
    if made > 0 { ringBell() }
    return true
  }

  /// The keys of all invites of a call, owed or finished.
  private func inviteKeys(of call: MemoryCall) -> [DeliveryKey] {
    (0..<call.invites).map { DeliveryKey(outboxID: call.id, pushNumber: $0) }
  }

  /// Ends the ready and waiting invites of those of the calls that no longer ring: void, or expired if the call was
  /// missed.
  mutating func voidUnsent(_ outboxIDs: Set<Int64>, at now: DatabaseTime) {
    for outboxID in outboxIDs.sorted() {
      guard let call = calls[outboxID], call.state != .ringing else { continue }
      for key in inviteKeys(of: call) {
        guard let row = deliveries[key], row.isInvite, row.state != .claimed else { continue }
        let isLate = call.state == .missed && row.deadlineAt <= now
        finish(
          row, isLate ? .expired : .void, reason: isLate ? row.lastReason ?? "DeadlinePassed" : call.state.voidReason,
          at: now)
      }
    }
  }

  /// One cancel for each device that may ring, never to a VoIP token, none for the user who answered.
  ///
  /// - Returns: those devices.
  private mutating func cancelInvites(_ call: MemoryCall, at now: DatabaseTime) -> Set<MemoryChannel> {
    guard call.state == .answered || call.state == .ended else { return [] }
    var targets: [(channel: MemoryChannel, userID: String)] = []
    for key in inviteKeys(of: call) {
      if let row = deliveries[key] {
        targets.append((MemoryChannel(lane: row.lane, token: row.token), row.userID))
      }
      for entry in history[key] ?? [] {
        // If a gateway settled the invite, its last attempt counts only if the request was sent. Otherwise every
        // attempt may have been sent.
        let mayHaveLeft = entry.wasSent || entry.attempts > (entry.owner == nil ? 0 : 1)
        guard mayHaveLeft, entry.outcome != .dead || entry.status == 0 else { continue }
        targets.append((MemoryChannel(lane: entry.lane, token: entry.token), entry.userID))
      }
    }
    var told: Set<MemoryChannel> = []
    var pushNumber = FirstNumber.cancel
    for (channel, userID) in targets
    where lanes[channel.lane]?.provider != "apns" && userID != call.answeredBy && told.insert(channel).inserted {
      insert(call.id, pushNumber, .cancel, channel, userID, until: now + Limits.cancelLife, at: now)
      pushNumber += 1
    }
    return told
  }

  /// Makes one missed call for each user, unless the call was answered, declined or busy.
  ///
  /// - Parameter told: the devices that get a cancel.
  private mutating func announceMissed(_ call: MemoryCall, told: Set<MemoryChannel>, at now: DatabaseTime) -> Int {
    switch call.state {
    case .missed: break
    case .ended where call.endReason != "declined" && call.endReason != "busy": break
    default: return 0
    }
    var users: Set<String> = []
    var made: Int32 = 0
    for recipient in call.recipients.sorted(by: { $0.userID < $1.userID }) {
      guard let channel = recipient.missedCall, users.insert(recipient.userID).inserted else { continue }
      let first = told.contains(channel) ? Delivery.firstAfterCancel : FirstNumber.missedCall
      insert(call.id, first + made, .missedCall, channel, recipient.userID, until: now + Limits.missedCallLife, at: now)
      made += 1
    }
    return Int(made)
  }

  // MARK: - The next channel

  /// After an invite that failed for good, makes one over the recipient's next channel while the call rings.
  ///
  /// - Returns: whether there is one.
  mutating func fallBack(_ failed: MemoryDelivery, at now: DatabaseTime) -> Bool {
    guard let call = calls[failed.key.outboxID], call.state == .ringing, call.deadlineAt > now,
      let recipient = call.recipients.first(where: { $0.userID == failed.userID })
    else { return false }
    let here = MemoryChannel(lane: failed.lane, token: failed.token)
    guard let index = recipient.channels.firstIndex(of: here), index + 1 < recipient.channels.count else {
      return false
    }
    let next = recipient.channels[index + 1]
    // No token is used twice in a call.
    let isUsed = inviteKeys(of: call).contains { key in
      deliveries[key].map { $0.lane == next.lane && $0.token == next.token } ?? false
        || (history[key] ?? []).contains { $0.lane == next.lane && $0.token == next.token }
    }
    guard !isUsed else { return false }
    invite(call.id, next, failed.userID, at: now)
    ringBell()
    return true
  }
}

extension MemoryCall.State {
  /// The reason of a void invite that was never sent.
  fileprivate var voidReason: String {
    switch self {
    case .ringing, .ended: "CallEnded"
    case .answered: "CallAnswered"
    case .missed: "CallMissed"
    }
  }
}

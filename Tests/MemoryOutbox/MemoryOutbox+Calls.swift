// What backends do: calls and messages are enqueued, calls end, users decline.

public import PushModel
internal import Queue

extension MemoryOutbox {
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
      insert(id, .invite, channel, recipient.userID, until: now + ring, at: now)
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
    for recipient in recipients {
      guard let channel = recipient.missedCall else { continue }
      let key = insert(id, .notification, channel, recipient.userID, until: now + life, at: now)
      deliveries[key]?.kind = kindCode
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

  /// One more push of a call, which must exist.
  @discardableResult
  mutating func insert(
    _ outboxID: Int64, _ kind: PushKind, _ channel: MemoryChannel, _ userID: String, until deadline: DatabaseTime,
    isPaired: Bool = false, at now: DatabaseTime
  ) -> DeliveryKey {
    let number = calls[outboxID]?.pushes.last.map { $0.pushNumber + 1 } ?? 0
    let key = DeliveryKey(outboxID: outboxID, pushNumber: number, createdAtMicroseconds: now)
    deliveries[key] = MemoryDelivery(
      key: key, kind: kind.rawValue, lane: channel.lane, userID: userID, token: channel.token, dueAt: now,
      deadlineAt: deadline, isPaired: isPaired)
    calls[outboxID]?.pushes.append(key)
    return key
  }

  // MARK: - The end

  /// Whether a statement that changes the call must wait, because follow-ups of it are running.
  public func isLocked(call outboxID: Int64) -> Bool { lockedCalls.contains(outboxID) }

  /// A backend locks the call's row, and keeps the lock until `unlock`. To be called while it is not locked.
  public mutating func lock(call outboxID: Int64) { lockedCalls.insert(outboxID) }

  public mutating func unlock(call outboxID: Int64) { lockedCalls.remove(outboxID) }

  /// `push.answer_call`. Durable. Returns false if the call had ended. To be called while the call is not locked.
  @discardableResult
  public mutating func answer(_ outboxID: Int64, by userID: String?, at now: DatabaseTime) -> Bool {
    end(outboxID, .answered, reason: "answered", by: userID, at: now)
  }

  /// `push.end_call`: without an answer; `declined` and `busy` leave no missed call. Durable. Returns false if it had ended. To be
  /// called while the call is not locked.
  @discardableResult
  public mutating func end(_ outboxID: Int64, reason: String = "ended", at now: DatabaseTime) -> Bool {
    end(outboxID, .ended, reason: reason, by: nil, at: now)
  }

  private mutating func end(
    _ outboxID: Int64, _ state: MemoryCall.State, reason: String, by userID: String?, at now: DatabaseTime
  ) -> Bool {
    guard calls[outboxID]?.state == .ringing else { return false }
    close(outboxID, state, reason: reason, by: userID, at: now)
    commit(isDurable: true)
    return true
  }

  /// Changes the call's state, and notes it for what follows. Not committed.
  mutating func close(
    _ outboxID: Int64, _ state: MemoryCall.State, reason: String, by userID: String? = nil, at now: DatabaseTime
  ) {
    guard var call = calls[outboxID] else { return }
    call.state = state
    call.endReason = reason
    call.answeredBy = userID
    calls[outboxID] = call
    note(outboxID, .ended, at: now)
    tell(of: call, at: now)
  }

  /// `push.decline_call`. Durable. Returns false if the call had ended, or the user had declined. To be called while the call is not
  /// locked.
  @discardableResult
  public mutating func decline(
    _ outboxID: Int64, by userID: String, reason: String = "declined", at now: DatabaseTime
  ) -> Bool {
    guard var call = calls[outboxID], call.rings(for: userID) else { return false }
    call.declined[userID] = reason
    calls[outboxID] = call
    note(outboxID, .declined, at: now)
    tell(of: call, at: now)
    commit(isDurable: true)
    return true
  }

  /// Tells gateways to look the call up. After the deadline they drop what they hold on their own.
  private mutating func tell(of call: MemoryCall, at now: DatabaseTime) {
    if call.deadlineAt > now { notifications.append(.ended(call.id)) }
  }
}

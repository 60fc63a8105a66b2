// What follows from ends, declines and failed pushes: a queue of notes, and transactions of their own that compare what there
// is with what there should be.

internal import PushModel
internal import Queue

/// Follow-ups between their start and their end.
public struct MemoryRunningFollowUps: Sendable {
  var notes: [Int64]
  /// The calls that are locked, as they were read.
  var calls: [MemoryCall]
  var isUrgent: Bool
}

extension MemoryOutbox {
  /// The first step of `push.follow_up`: takes notes that are due, locks their calls, and reads them.
  public mutating func beginFollowUps(isUrgent: Bool, max: Int, at now: DatabaseTime) -> MemoryRunningFollowUps {
    let due = notes.rows.filter { $1.isUrgent == isUrgent && $1.dueAt <= now && !takenNotes.contains($0) }
    let taken = due.sorted { ($0.value.dueAt, $0.key) < ($1.value.dueAt, $1.key) }.prefix(max).map(\.key)
    let ids = Set(taken.compactMap { notes[$0]?.outboxID }).subtracting(lockedCalls).sorted()
    takenNotes.formUnion(taken)
    lockedCalls.formUnion(ids)
    return MemoryRunningFollowUps(notes: taken, calls: ids.compactMap { calls[$0] }, isUrgent: isUrgent)
  }

  /// The second step: does what follows, and releases the locks. Returns how many notes it took.
  public mutating func finish(_ run: MemoryRunningFollowUps, at now: DatabaseTime) -> Int {
    let causes = Dictionary(grouping: run.notes.compactMap { notes[$0] }, by: \.outboxID)
    var followed: Set<Int64> = []
    for var call in run.calls {
      let causes = causes[call.id, default: []].map(\.cause)
      if causes.contains(.failed) || !call.declined.isEmpty { nextChannels(call, at: now) }
      if !call.declined.isEmpty { endDeclined(call, at: now) }
      // It may have ended now. Its pushes stay as they were read when it was locked.
      let pushes = call.pushes
      call = calls[call.id] ?? call
      call.pushes = pushes
      guard voidUnsent(call, at: now) else { continue }
      followed.insert(call.id)
      cancelRings(call, at: now)
      tellMissed(call, at: now)
      if causes.contains(.untold) { tellUntold(call, at: now) }
    }
    for number in run.notes {
      guard let note = notes[number] else { continue }
      if followed.contains(note.outboxID) || calls[note.outboxID] == nil {
        notes[number] = nil
      } else {
        notes[number]?.dueAt = now + Limits.lockedCall
      }
    }
    takenNotes.subtract(run.notes)
    lockedCalls.subtract(run.calls.map(\.id))
    if !run.notes.isEmpty { commit() }
    return run.notes.count
  }

  /// `push.follow_up`, in one step.
  public mutating func followUp(isUrgent: Bool, max: Int = 50, at now: DatabaseTime) -> Int {
    finish(beginFollowUps(isUrgent: isUrgent, max: max, at: now), at: now)
  }

  // MARK: - What follows

  /// Ready and waiting invites of users for whom the call no longer rings are void, or expired if the call was missed. Returns whether
  /// these are all: a claim may be taking others.
  private mutating func voidUnsent(_ call: MemoryCall, at now: DatabaseTime) -> Bool {
    let unsent = call.pushes.compactMap { deliveries[$0] }.filter {
      $0.isInvite && $0.state != .claimed && !call.rings(for: $0.userID)
    }
    for row in unsent where !locked.contains(row.key) {
      let isLate = call.state == .missed && row.deadlineAt <= now
      finish(
        row, isLate ? .expired : .void, reason: isLate ? row.lastReason ?? "DeadlinePassed" : voidReason(row), at: now)
    }
    return unsent.allSatisfy { !locked.contains($0.key) }
  }

  /// One cancel for each phone that may ring and must not: never to a VoIP token, none for the user who answered.
  private mutating func cancelRings(_ call: MemoryCall, at now: DatabaseTime) {
    guard call.state != .missed else { return }
    let pushes = pushes(of: call)
    var told = Set(pushes.filter { $0.kind == .cancel }.map(\.channel))
    for push in pushes where push.kind == .invite && push.mayHaveArrived && !call.rings(for: push.userID) {
      guard push.userID != call.answeredBy, lanes[push.channel.lane]?.provider != "apns",
        told.insert(push.channel).inserted
      else { continue }
      insert(call.id, .cancel, push.channel, push.userID, until: now + Limits.cancelLife, at: now)
    }
  }

  /// One missed call for each user, unless the call was answered, declined or busy, or the user has declined.
  private mutating func tellMissed(_ call: MemoryCall, at now: DatabaseTime) {
    switch call.state {
    case .missed: break
    case .ended where call.endReason != "declined" && call.endReason != "busy": break
    default: return
    }
    guard !pushes(of: call).contains(where: { $0.kind == .missedCall }) else { return }
    // The cancels were made just now, so the row is read again.
    let cancels = pushes(of: calls[call.id] ?? call).filter { $0.kind == .cancel }
    var users: Set<String> = []
    for recipient in call.recipients.sorted(by: { $0.userID < $1.userID }) where call.declined[recipient.userID] == nil
    {
      guard let channel = recipient.missedCall, users.insert(recipient.userID).inserted else { continue }
      let paired = cancels.filter { $0.channel == channel }
      insert(
        call.id, .missedCall, channel, recipient.userID, until: now + Limits.missedCallLife, isPaired: !paired.isEmpty,
        at: now)
      for cancel in paired where deliveries[cancel.key]?.state == .ready { deliveries[cancel.key]?.isPaired = true }
    }
  }

  /// A cancel that would have shown the missed call was not sent: the missed call is sent after all.
  private mutating func tellUntold(_ call: MemoryCall, at now: DatabaseTime) {
    let pushes = pushes(of: call)
    let untold = Set(pushes.filter(\.hasShownNothing).map(\.channel))
    var seen: Set<MemoryChannel> = []
    // The last one of each phone.
    for missed in pushes.reversed() where missed.kind == .missedCall && seen.insert(missed.channel).inserted {
      guard untold.contains(missed.channel), missed.deadlineAt > now else { continue }
      if missed.outcome == nil {
        if deliveries[missed.key]?.state != .claimed { deliveries[missed.key]?.isPaired = false }
      } else if missed.reason == "SaidByCancel" {
        insert(call.id, .missedCall, missed.channel, missed.userID, until: missed.deadlineAt, at: now)
      }
    }
  }

  /// For each invite that failed for good, one over the recipient's next channel. No token is used twice in a call.
  private mutating func nextChannels(_ call: MemoryCall, at now: DatabaseTime) {
    guard call.deadlineAt > now else { return }
    let invites = pushes(of: call).filter { $0.kind == .invite }
    var used = Set(invites.map(\.channel))
    for failed in invites where failed.outcome == .dead || failed.outcome == .expired {
      guard call.rings(for: failed.userID),
        let channels = call.recipients.first(where: { $0.userID == failed.userID })?.channels,
        let index = channels.firstIndex(of: failed.channel), index + 1 < channels.count,
        used.insert(channels[index + 1]).inserted
      else { continue }
      insert(call.id, .invite, channels[index + 1], failed.userID, until: call.deadlineAt, at: now)
    }
  }

  /// A call ends when every user whose phone was rung has declined; if none was rung, every recipient.
  private mutating func endDeclined(_ call: MemoryCall, at now: DatabaseTime) {
    guard call.state == .ringing, hasDeclined(call) else { return }
    close(call.id, .ended, reason: "declined", at: now)
  }

  /// Whether every user has declined for whom the call rings.
  public func hasDeclined(_ call: MemoryCall) -> Bool {
    let rung = pushes(of: call).filter { $0.kind == .invite && ($0.outcome != .dead || $0.mayHaveArrived) }
    let users = rung.isEmpty ? call.recipients.map(\.userID) : rung.map(\.userID)
    return users.allSatisfy { call.declined[$0] != nil }
  }
}

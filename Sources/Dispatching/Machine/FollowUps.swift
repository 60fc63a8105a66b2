// When to run follow-ups: what follows from ends of calls, declines and failed pushes, and is not done in their transactions. Pure.
//
// The jobs of the database run them several times a second, whoever asks. A gateway that knows of a cause runs them at once.

internal import Queue
internal import Runtime

/// Runs follow-ups after causes that are known here. At most one run of each kind is under way. Causes meanwhile bring one more.
struct FollowUps {
  private struct Slot {
    var isCaused = false
    var isUnderWay = false
    var notBefore = Instant(nanoseconds: .min)

    var due: Instant { isCaused && !isUnderWay ? notBefore : .distantFuture }
  }

  /// The minimum time from the start of a run to the next, so that causes are collected. Anybody who may connect can cause runs.
  private static let pause = Nanoseconds.milliseconds(5)

  private var slots: [JobKind: Slot] = [.urgent: Slot(), .upkeep: Slot()]

  /// How many follow-ups one run takes at most. Their calls stay locked until it ends. What is urgent is about calls that ring.
  static func countMax(_ kind: JobKind) -> Int { kind == .urgent ? 10 : 50 }

  /// When the next run is due; distant future if none is due before the next event.
  var due: Instant { slots.values.reduce(.distantFuture) { min($0, $1.due) } }

  /// Something happened that has follow-ups of this kind.
  mutating func note(_ kind: JobKind) { slots[kind]?.isCaused = true }

  /// Whether to run those of this kind now. `didRun` follows.
  mutating func runs(_ kind: JobKind, _ now: Instant) -> Bool {
    guard slots[kind, default: Slot()].due <= now else { return false }
    slots[kind] = Slot(isUnderWay: true, notBefore: now + Self.pause)
    return true
  }

  /// A run took `count` of them. If it was full, there may be more, and the next run is due at once. If it failed, it took none, and the
  /// database's jobs do what is left.
  mutating func didRun(_ kind: JobKind, _ count: Int) {
    slots[kind]?.isUnderWay = false
    if count >= Self.countMax(kind) { slots[kind] = Slot(isCaused: true) }
  }
}

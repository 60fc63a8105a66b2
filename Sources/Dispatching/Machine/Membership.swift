// Whether this gateway is registered, and whether it may claim and write. Pure.
//
//   unavailable ── the store is available ──▶ unconfirmed ── a beat is confirmed ──▶ open
//        ▲                                         │                                  │
//        └───────────── the store is gone ─────────┴──────────────────────────────────┤
//                                                                                     │
//   A gateway that was declared dead, or whose server may have lost commits, reclaims its deliveries before it is open.

internal import Queue
internal import Runtime

/// Decides about registration and beats, and what their answers mean.
struct Membership {
  enum Call {
    case register
    case beat(mayReap: Bool)
  }

  private let settings: DispatcherSettings
  private(set) var isStoreAvailable = false
  private(set) var isRegistered = false
  /// Whether a beat has been confirmed since the store is available.
  private(set) var isConfirmed = false
  /// Whether deliveries must be reclaimed before anything else.
  private(set) var mustReclaim = false
  /// Whether the reclaim must be confirmed, because the database asked for it.
  private(set) var mustConfirmReclaim = false
  private var availableSince = Instant(nanoseconds: .min)
  private var isAsking = false
  /// Whether the connection was lost since the call under way was sent, so that its answer is outdated.
  private var isAnswerOld = false
  private var nextCall = Instant(nanoseconds: .min)
  private var reclaimedAt = Instant(nanoseconds: .min)

  init(settings: DispatcherSettings) {
    self.settings = settings
  }

  /// Whether deliveries may be claimed and written.
  var isOpen: Bool { isConfirmed && !mustReclaim }

  /// The store can be reached again. What happened meanwhile is unknown.
  mutating func becomeAvailable(_ now: Instant) {
    isStoreAvailable = true
    isConfirmed = false
    isAnswerOld = isAsking
    availableSince = now
    nextCall = now
  }

  mutating func becomeUnavailable() {
    isStoreAvailable = false
    isConfirmed = false
    isAnswerOld = isAsking
  }

  /// When the next call is due; distant future if none is due before the next event.
  var due: Instant { isStoreAvailable && !isAsking ? nextCall : .distantFuture }

  /// The call that is due.
  ///
  /// - Parameter isQuiet: no claim and no batch of the former gateway is under way, so that a new one may register.
  mutating func call(isQuiet: Bool, _ now: Instant) -> Call? {
    guard due <= now, isRegistered || isQuiet else { return nil }
    isAsking = true
    isAnswerOld = false
    nextCall = now + settings.beatInterval
    if !isRegistered { return .register }
    // While others may have been silent only because they could not reach the server either, no gateway is declared dead.
    return .beat(mayReap: now - availableSince >= settings.silence)
  }

  /// A new gateway was registered.
  ///
  /// - Parameter knowsAnything: deliveries of the former gateway are held or remembered.
  mutating func didRegister(knowsAnything: Bool) {
    isAsking = false
    isRegistered = true
    isConfirmed = isStoreAvailable && !isAnswerOld
    mustReclaim = knowsAnything
    mustConfirmReclaim = false
  }

  /// A beat was answered. Returns false if this gateway was declared dead. It must stop sending then, and register again.
  mutating func didBeat(_ beat: Beat, askedAt: Instant) -> Bool {
    isAsking = false
    guard beat.isAlive else {
      isRegistered = false
      isConfirmed = false
      mustReclaim = false
      nextCall = Instant(nanoseconds: .min)
      return false
    }
    if isStoreAvailable, !isAnswerOld { isConfirmed = true }
    // A beat that was sent before the last reclaim was confirmed does not know of the reclaim.
    if beat.mustReclaim, askedAt > reclaimedAt {
      mustReclaim = true
      mustConfirmReclaim = true
    }
    return true
  }

  mutating func didFail(_ now: Instant) {
    isAsking = false
    nextCall = min(nextCall, now + settings.retryInterval)
  }

  /// Everything was reclaimed, and confirmed if that was asked for.
  mutating func didReclaim(_ now: Instant) {
    mustReclaim = false
    mustConfirmReclaim = false
    reclaimedAt = now
  }

  /// This gateway ends. A new one replaces it.
  mutating func leave(_ now: Instant) {
    isRegistered = false
    isConfirmed = false
    nextCall = now
  }
}

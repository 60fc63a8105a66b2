// Whether this gateway exists for the database, and whether the database may be worked with. Pure.
//
//   unavailable ── the store is available ──▶ unconfirmed ── a beat is confirmed ──▶ open
//        ▲                                         │                                  │
//        └───────────── the store is gone ─────────┴──────────────────────────────────┤
//                                                                                     │
//   Whoever is told that it counts as dead, or that the server may have lost commits, reclaims what it has, and is open then.

internal import Queue
internal import Runtime

/// Registration, beats, and what their answers mean.
struct Membership {
  enum Call {
    case register
    case beat(mayReap: Bool)
  }

  private let settings: DispatcherSettings
  private(set) var isStoreAvailable = false
  private(set) var isRegistered = false
  /// Since the store is available a beat has been confirmed.
  private(set) var isConfirmed = false
  /// What this gateway has is to be reclaimed before anything else is done.
  private(set) var mustReclaim = false
  /// The reclaim is to be confirmed: the database asked for it.
  private(set) var mustConfirmReclaim = false
  private var availableSince = Instant(nanoseconds: .min)
  private var isAsking = false
  /// The connection was lost since the call under way was asked: what that confirms is old.
  private var isAnswerOld = false
  private var nextCall = Instant(nanoseconds: .min)
  private var reclaimedAt = Instant(nanoseconds: .min)

  init(settings: DispatcherSettings) {
    self.settings = settings
  }

  /// Deliveries may be claimed and written.
  var isOpen: Bool { isConfirmed && !mustReclaim }

  /// The store can be reached: nothing is known of what happened meanwhile.
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

  /// When the next call is due; distant future for not before something happens.
  var due: Instant { isStoreAvailable && !isAsking ? nextCall : .distantFuture }

  /// The call that is due.
  ///
  /// - Parameter isQuiet: no claim and no batch of the former gateway is under way: a new one may begin.
  mutating func call(isQuiet: Bool, _ now: Instant) -> Call? {
    guard due <= now, isRegistered || isQuiet else { return nil }
    isAsking = true
    isAnswerOld = false
    nextCall = now + settings.beatInterval
    if !isRegistered { return .register }
    // For as long as others may have been silent only because they could not reach the server either, nobody is declared dead.
    return .beat(mayReap: now - availableSince >= settings.silence)
  }

  /// A new gateway.
  ///
  /// - Parameter knowsAnything: the former one has left something.
  mutating func didRegister(knowsAnything: Bool) {
    isAsking = false
    isRegistered = true
    isConfirmed = isStoreAvailable && !isAnswerOld
    mustReclaim = knowsAnything
    mustConfirmReclaim = false
  }

  /// A beat was answered. Returns false if this gateway counts as dead: it must drop what it has and register anew.
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
    // One asked before the last reclaim was confirmed does not know of that.
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

  /// Everything was reclaimed, and that is confirmed where it had to be.
  mutating func didReclaim(_ now: Instant) {
    mustReclaim = false
    mustConfirmReclaim = false
    reclaimedAt = now
  }

  /// This gateway ends; another takes its place.
  mutating func leave(_ now: Instant) {
    isRegistered = false
    isConfirmed = false
    nextCall = now
  }
}

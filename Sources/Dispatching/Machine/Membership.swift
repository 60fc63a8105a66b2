// Whether this gateway is registered, and whether it may claim and write. Pure.
//
//   unavailable ── the store is available ──▶ unconfirmed ── a beat is confirmed ──▶ open
//        ▲                                         │                                  │
//        └───────────── the store is gone ─────────┴──────────────────────────────────┘
//
//   A gateway that was declared dead registers anew.

internal import Runtime

/// Decides about registration and beats, and what their answers mean.
struct Membership {
  private let settings: DispatcherSettings
  private(set) var isStoreAvailable = false
  private(set) var isRegistered = false
  /// Whether a beat has been confirmed since the store is available: deliveries may be claimed and written.
  private(set) var isOpen = false
  private var availableSince = Instant(nanoseconds: .min)
  private var isAsking = false
  /// Whether the connection was lost since the call under way was sent, so that its answer is outdated.
  private var isAnswerOld = false
  private var nextCall = Instant(nanoseconds: .min)

  init(settings: DispatcherSettings) {
    self.settings = settings
  }

  /// The store can be reached again. What happened meanwhile is unknown.
  mutating func becomeAvailable(_ now: Instant) {
    isStoreAvailable = true
    isOpen = false
    isAnswerOld = isAsking
    availableSince = now
    nextCall = now
  }

  mutating func becomeUnavailable() {
    isStoreAvailable = false
    isOpen = false
    isAnswerOld = isAsking
  }

  /// When the next call is due; distant future if none is due before the next event.
  var due: Instant { isStoreAvailable && !isAsking ? nextCall : .distantFuture }

  /// The call of the store that is due: a registration or a beat.
  ///
  /// - Parameter isQuiet: no claim and no batch of the former gateway is under way, so that a new one may register.
  mutating func call(isQuiet: Bool, _ now: Instant) -> DispatcherAction? {
    guard due <= now, isRegistered || isQuiet else { return nil }
    isAsking = true
    isAnswerOld = false
    nextCall = now + settings.beatInterval
    if !isRegistered { return .register }
    // While others may have been silent only because they could not reach the server either, no gateway is declared dead.
    return .beat(mayReap: now - availableSince >= settings.silence)
  }

  /// A new gateway was registered.
  mutating func didRegister() {
    isRegistered = true
    didBeat(isAlive: true)
  }

  /// A beat was answered.
  ///
  /// - Parameter isAlive: false if this gateway was declared dead.
  mutating func didBeat(isAlive: Bool) {
    isAsking = false
    guard isAlive else { return leave() }
    if isRegistered, isStoreAvailable, !isAnswerOld { isOpen = true }
  }

  mutating func didFail(_ now: Instant) {
    isAsking = false
    nextCall = min(nextCall, now + settings.retryInterval)
  }

  /// This gateway has ended. A new one replaces it at once.
  mutating func leave() {
    isRegistered = false
    isOpen = false
    nextCall = Instant(nanoseconds: .min)
  }
}

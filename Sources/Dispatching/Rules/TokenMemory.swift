// What a lane remembers of tokens beyond a delivery: whose pushes lost their connections, and which belong to APNs' other environment.
// Pure.
//
// A backend that gives the token with each call may give a wrong environment each time. push.devices, which is corrected, does not have it.
//
// A ring that was lost goes back to the outbox, which does not store its losses. The next one to the same phone may be lost, too. One
// whose environment says late that the token is not its own has been handed on, and the next try is to ask the other one.

internal import PushModel
internal import Runtime

/// What is known of each of a lane's tokens since it last worked.
struct TokenMemory {
  /// Maximum number of tokens. Above it the one is forgotten that failed longest ago.
  static let countMax = 1_024
  /// For how long a loss, or what an environment has said late, is remembered.
  static let life = Nanoseconds.seconds(600)

  private struct Entry {
    var losses = ConnectionLosses()
    /// The environment that has said that the token is not its own.
    var foreign: PushEnvironment?
    /// The environment that has accepted a push to the token, though it was registered for the other one. A token never changes it.
    var home: PushEnvironment?
    var at: Instant
  }

  private var entries: [ArraySlice<UInt8>: Entry] = [:]

  /// The losses of a token so far.
  func losses(of token: ArraySlice<UInt8>, _ now: Instant) -> ConnectionLosses {
    entry(of: token, now)?.losses ?? ConnectionLosses()
  }

  /// Whether this environment has said that the token is not its own. The token may have been registered for the other one since.
  func isForeign(_ token: ArraySlice<UInt8>, in environment: PushEnvironment, _ now: Instant) -> Bool {
    entry(of: token, now)?.foreign == environment
  }

  /// The environment that has accepted a push to the token, if the other one was asked before; nil if that is not known.
  func home(of token: ArraySlice<UInt8>) -> PushEnvironment? { entries.isEmpty ? nil : entries[token]?.home }

  private func entry(of token: ArraySlice<UInt8>, _ now: Instant) -> Entry? {
    guard !entries.isEmpty, let entry = entries[token], entry.at + Self.life > now else { return nil }
    return entry
  }

  mutating func note(_ losses: ConnectionLosses, of token: ArraySlice<UInt8>, _ now: Instant) {
    note(token, now) { $0.losses = losses }
  }

  mutating func noteForeign(_ token: ArraySlice<UInt8>, in environment: PushEnvironment, _ now: Instant) {
    note(token, now) { $0.foreign = environment }
  }

  mutating func noteHome(_ token: ArraySlice<UInt8>, in environment: PushEnvironment, _ now: Instant) {
    note(token, now) { $0.home = environment }
  }

  private mutating func note(_ token: ArraySlice<UInt8>, _ now: Instant, _ change: (inout Entry) -> Void) {
    var entry = entry(of: token, now) ?? Entry(home: home(of: token), at: now)
    entry.at = now
    change(&entry)
    // A copy, because the token is a part of a larger buffer.
    entries[Array(token)[...]] = entry
    guard entries.count > Self.countMax else { return }
    if let oldest = entries.min(by: { $0.value.at < $1.value.at }) { entries[oldest.key] = nil }
  }

  /// A push to the token was answered.
  mutating func forget(_ token: ArraySlice<UInt8>) {
    guard !entries.isEmpty, let entry = entries[token] else { return }
    entries[token] = entry.home.map { Entry(home: $0, at: entry.at) }
  }
}

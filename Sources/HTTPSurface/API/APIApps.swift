// What the API must know of apps: which one a Matrix pusher belongs to, and whose calls need a UUID. Apps change without a restart, so the
// API asks here at each request.

package import Settings
internal import Synchronization

/// What the configuration says of apps.
package final class APIApps: Sendable {
  /// What an `app_id` stands for.
  struct Target: Equatable, Sendable {
    var app: String
    /// The kind of the pusher's token.
    var kind: MatrixAppIDs.TokenKind
    /// Whether the token is of Apple's sandbox.
    var isSandbox = false
    /// Whether the app has pushers with VoIP tokens, which ring.
    var hasVoIP = false
  }

  private struct Entry {
    var pattern: MatrixAppIDs.Pattern
    var target: Target
    var sandbox: [MatrixAppIDs.Pattern]
  }

  private struct State {
    /// The most exact first: whole app ids, then prefixes, the longest first. The first that matches counts.
    var entries: [Entry]
    /// The apps whose iPhones can answer only a call whose id is a UUID.
    var needUUIDs: Set<String>
  }

  private let state: Mutex<State>

  package convenience init(_ apps: [GatewayConfiguration.App] = []) {
    self.init(ids: Self.ids(of: apps), needUUIDs: Self.needUUIDs(apps))
  }

  /// - Parameters:
  ///   - ids: by app.
  ///   - needUUIDs: the apps whose iPhones can answer only a call whose id is a UUID.
  package init(ids: [String: MatrixAppIDs], needUUIDs: Set<String> = []) {
    state = Mutex(State(entries: Self.entries(ids), needUUIDs: needUUIDs))
  }

  /// Takes over another configuration.
  package func update(to apps: [GatewayConfiguration.App]) {
    let next = State(entries: Self.entries(Self.ids(of: apps)), needUUIDs: Self.needUUIDs(apps))
    state.withLock { $0 = next }
  }

  /// Whether the app's iPhones can answer only a call whose id is a UUID in small letters.
  func needsUUID(_ app: String) -> Bool { state.withLock { $0.needUUIDs.contains(app) } }

  /// Nil if no app has this app id.
  func target(of appID: String) -> Target? {
    state.withLock { state in
      guard let entry = state.entries.first(where: { $0.pattern.matches(appID) }) else { return nil }
      var target = entry.target
      target.isSandbox = target.kind != .fcm && entry.sandbox.contains { $0.matches(appID) }
      return target
    }
  }

  private static func needUUIDs(_ apps: [GatewayConfiguration.App]) -> Set<String> {
    Set(apps.filter(\.needsUUID).map(\.name))
  }

  private static func ids(of apps: [GatewayConfiguration.App]) -> [String: MatrixAppIDs] {
    apps.reduce(into: [:]) { $0[$1.name] = $1.matrix }
  }

  private static func entries(_ ids: [String: MatrixAppIDs]) -> [Entry] {
    let entries = ids.flatMap { app, ids in
      ids.patterns.flatMap { kind, patterns in
        patterns.map { pattern in
          Entry(
            pattern: pattern, target: Target(app: app, kind: kind, hasVoIP: ids.patterns[.voip] != nil),
            sandbox: ids.sandbox)
        }
      }
    }
    return entries.sorted { one, other in
      one.pattern.isPrefix == other.pattern.isPrefix
        ? one.pattern.text.utf8.count > other.pattern.text.utf8.count : other.pattern.isPrefix
    }
  }
}

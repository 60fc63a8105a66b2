// Which app a Matrix pusher belongs to. Apps change without a restart, so the API asks here at each request.

package import Settings
internal import Synchronization

/// The apps of Matrix pushers.
package final class MatrixApps: Sendable {
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

  /// The most exact first: whole app ids, then prefixes, the longest first. The first that matches counts.
  private let entries: Mutex<[Entry]>

  package init(_ apps: [GatewayConfiguration.App] = []) {
    entries = Mutex(Self.entries(Self.ids(of: apps)))
  }

  /// - Parameter ids: by app.
  package init(ids: [String: MatrixAppIDs]) {
    entries = Mutex(Self.entries(ids))
  }

  /// Takes over another configuration.
  package func update(to apps: [GatewayConfiguration.App]) {
    let next = Self.entries(Self.ids(of: apps))
    entries.withLock { $0 = next }
  }

  /// Nil if no app has this app id.
  func target(of appID: String) -> Target? {
    entries.withLock { entries in
      guard let entry = entries.first(where: { $0.pattern.matches(appID) }) else { return nil }
      var target = entry.target
      target.isSandbox = target.kind != .fcm && entry.sandbox.contains { $0.matches(appID) }
      return target
    }
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

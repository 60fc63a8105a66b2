// Names to addresses, beside the loop: libpq would look names up itself, and stop everything on the loop for as long as that takes.

internal import Runtime

/// Looks names up, each at most once at a time however many ask. Confined to its loop.
final class HostLookups {
  typealias Outcome = Result<[SocketAddress], SocketAddress.ResolutionError>

  private let loop: EventLoop
  private var waiting: [String: [(Outcome) -> Void]] = [:]

  init(loop: EventLoop) {
    self.loop = loop
  }

  /// Finds the addresses of a host and comes back to the loop with them. What was found before is not remembered: a name that
  /// moves is followed.
  func look(up host: String, _ completion: @escaping (Outcome) -> Void) {
    waiting[host, default: []].append(completion)
    guard waiting[host]?.count == 1 else { return }
    // The resolver's thread only carries the reference back; everything else happens on the loop.
    nonisolated(unsafe) let lookups = self
    SocketAddress.resolve(host, port: 0, on: loop) { outcome in
      unsafe lookups.finish(host, outcome)
    }
  }

  private func finish(_ host: String, _ outcome: Outcome) {
    for completion in waiting.removeValue(forKey: host) ?? [] { completion(outcome) }
  }
}

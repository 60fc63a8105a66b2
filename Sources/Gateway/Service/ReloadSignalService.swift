// Reads the credentials again at SIGHUP.

import ServiceLifecycle
import UnixSignals

/// Runs an action at each SIGHUP until shutdown.
struct ReloadSignalService: Service {
  private let action: @Sendable () async -> Void

  init(action: @escaping @Sendable () async -> Void) {
    self.action = action
  }

  func run() async {
    let signals = await UnixSignalsSequence(trapping: .sighup)
    for await _ in signals.cancelOnGracefulShutdown() { await action() }
  }
}

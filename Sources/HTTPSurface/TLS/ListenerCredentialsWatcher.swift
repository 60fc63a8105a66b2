// Checks the listeners' certificates every two seconds. Separate from the watcher of the gateway's credentials, because
// the listeners start before the database is reachable.

import ServiceLifecycle

/// Reads changed certificates again, until shutdown.
package struct ListenerCredentialsWatcher: Service {
  private static let interval = Duration.seconds(2)

  package let credentials: [ListenerCredentials]

  package init(credentials: [ListenerCredentials]) {
    self.credentials = credentials
  }

  package func run() async {
    await cancelWhenGracefulShutdown {
      while (try? await Task.sleep(for: Self.interval)) != nil {
        for listener in credentials { listener.look() }
      }
    }
  }

  /// Reads all certificates again now.
  package func reload() {
    for listener in credentials { listener.reload() }
  }
}

// Looks at the listeners' certificates every two seconds: apart from the gateway's own credentials, because listeners are there
// before the database is.

import ServiceLifecycle

/// Has changed certificates read again, until shutdown.
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

  /// Reads all of them again, now.
  package func reload() {
    for listener in credentials { listener.reload() }
  }
}

// systemd's watchdog (sd_watchdog_enabled(3)), which restarts the process when its messages stop. They are sent only
// while the event loops beat.

import Foundation
import HTTPSurface
import Logging
import ServiceLifecycle

/// Sends a message at half the interval that the watchdog requires.
struct Watchdog: Service {
  private let heartbeat: Heartbeat
  private let notifier: ServiceNotifier
  private let interval: Duration
  private let logger: Logger

  /// Nil if systemd watches no process, or another one.
  init?(
    _ heartbeat: Heartbeat, notifier: ServiceNotifier = ServiceNotifier(), logger: Logger,
    environment: [String: String] = ProcessInfo.processInfo.environment
  ) {
    guard let microseconds = environment["WATCHDOG_USEC"].flatMap({ Int64($0) }), microseconds > 1 else { return nil }
    if let process = environment["WATCHDOG_PID"], process != "\(ProcessInfo.processInfo.processIdentifier)" {
      return nil
    }
    self.heartbeat = heartbeat
    self.notifier = notifier
    interval = .microseconds(microseconds / 2)
    self.logger = logger
  }

  func run() async {
    await cancelWhenGracefulShutdown {
      while !Task.isCancelled {
        let silent = await heartbeat.silentLoops(within: min(Heartbeat.patience, interval / 2))
        if silent.isEmpty {
          notifier.notify(.watchdog)
        } else {
          logger.critical(
            "An event loop does not answer: the watchdog gets no messages",
            metadata: ["loops": "\(silent.joined(separator: " "))"])
        }
        try? await Task.sleep(for: interval)
      }
    }
  }
}

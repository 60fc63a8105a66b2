// How tests start programs.

public import Foundation
import Synchronization

private let starting = Mutex(())

extension Process {
  /// Starts the program, and no other at the same time. Tests use it instead of `run()`.
  ///
  /// Foundation notices the end of a program by a socket that the program holds. If two start at once, the second may inherit the socket
  /// of the first: the first then counts as running until the second has ended, too (8 of 300 where four threads start programs).
  public func start() throws {
    try starting.withLock { _ in try run() }
  }
}

// The log level of the whole program. It can change while the program runs, so all loggers share one.

package import Logging
import Synchronization

/// The current value of `log.level`.
package final class LogThreshold: Sendable {
  private let rank: Atomic<Int>

  package init(_ level: Logger.Level) {
    rank = Atomic(Self.rank(of: level))
  }

  /// Reading costs no more than reading a variable.
  package var level: Logger.Level {
    get { Logger.Level.allCases[rank.load(ordering: .relaxed)] }
    set { rank.store(Self.rank(of: newValue), ordering: .relaxed) }
  }

  private static func rank(of level: Logger.Level) -> Int {
    Logger.Level.allCases.firstIndex(of: level) ?? 0
  }
}

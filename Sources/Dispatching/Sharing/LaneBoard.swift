// What the dispatchers of several databases tell each other about a provider account that they share.

public import Runtime

/// News about a lane. Each holds for every dispatcher that uses the same account.
public enum LaneNews: Sendable, Equatable {
  /// The circuit has opened.
  case circuitOpened(until: Instant)
  /// The circuit has closed: the provider answers.
  case circuitClosed
  /// The provider asked for a pause.
  case throttled(until: Instant)
  /// The provider calls so many tokens dead that dead tokens are quarantined; `note` says how many.
  case invalidationHeld(note: String)
}

/// Passes the news of each dispatcher to the others.
// @unchecked: used only on the loop's thread, which each access checks.
public final class LaneBoard: @unchecked Sendable {
  private let loop: EventLoop
  private var readers: [Int: (LaneNews) -> Void] = [:]

  public init(on loop: EventLoop) { self.loop = loop }

  /// - Parameters:
  ///   - dispatcher: the number of the dispatcher.
  ///   - hear: gets the news of the others.
  func join(_ dispatcher: Int, hear: @escaping (LaneNews) -> Void) {
    loop.checkIsolated()
    readers[dispatcher] = hear
  }

  func leave(_ dispatcher: Int) {
    loop.checkIsolated()
    readers[dispatcher] = nil
  }

  func post(_ news: LaneNews, from dispatcher: Int) {
    loop.checkIsolated()
    for (reader, hear) in readers where reader != dispatcher { hear(news) }
  }
}

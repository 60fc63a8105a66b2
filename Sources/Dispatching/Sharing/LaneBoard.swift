// What the dispatchers of several databases tell each other about a provider account that they share.

public import Queue
public import Runtime

/// News about a lane. Each holds for every dispatcher that uses the same account.
public enum LaneNews: Sendable, Equatable {
  /// The circuit has opened, and not by silence alone.
  case circuitOpened(until: Instant)
  /// The circuit has closed: the provider answers.
  case circuitClosed
  /// The provider asked for a pause.
  case throttled(until: Instant)
  /// The provider calls so many tokens dead that dead tokens are quarantined; `note` says how many.
  case invalidationHeld(note: String)
}

/// Passes the news of each dispatcher to the others, and to one that joins later those that still hold: after a change of the apps, a
/// new dispatcher takes over while the provider is in trouble or has asked for a pause.
// @unchecked: used only on the loop's thread, which each access checks.
public final class LaneBoard: @unchecked Sendable {
  private let loop: EventLoop
  private var readers: [Int: (LaneNews) -> Void] = [:]
  /// The end of the time for which the circuit was opened last; nil if it has closed since.
  private var circuitUntil: Instant?
  private var throttledUntil = Instant(nanoseconds: .min)
  private var sentence: @Sendable (LaneRefusal.Extent, String) -> String

  /// - Parameter sentence: says that the account's credentials are refused, and what to check: `LaneRefusal.sentence`. Gets the extent
  ///   and the provider's reason.
  public init(on loop: EventLoop, sentence: @escaping @Sendable (LaneRefusal.Extent, String) -> String) {
    self.loop = loop
    self.sentence = sentence
  }

  /// The configuration names the account's credentials differently from now on.
  public func describe(by sentence: @escaping @Sendable (LaneRefusal.Extent, String) -> String) {
    loop.checkIsolated()
    self.sentence = sentence
  }

  func describe(_ extent: LaneRefusal.Extent, _ reason: String) -> String {
    loop.checkIsolated()
    return sentence(extent, reason)
  }

  /// - Parameters:
  ///   - dispatcher: the number of the dispatcher.
  ///   - hear: gets the news of the others.
  func join(_ dispatcher: Int, hear: @escaping (LaneNews) -> Void) {
    loop.checkIsolated()
    readers[dispatcher] = hear
    if let circuitUntil { hear(.circuitOpened(until: circuitUntil)) }
    if throttledUntil > loop.now { hear(.throttled(until: throttledUntil)) }
  }

  func leave(_ dispatcher: Int) {
    loop.checkIsolated()
    readers[dispatcher] = nil
  }

  /// The account's credentials have changed: a dispatcher that joins with an open circuit tries at once.
  public func credentialsChanged() {
    loop.checkIsolated()
    if circuitUntil != nil { circuitUntil = loop.now }
  }

  func post(_ news: LaneNews, from dispatcher: Int) {
    loop.checkIsolated()
    switch news {
    case .circuitOpened(let until): circuitUntil = until
    case .circuitClosed: circuitUntil = nil
    case .throttled(let until): throttledUntil = max(throttledUntil, until)
    case .invalidationHeld: break  // the database has it
    }
    for (reader, hear) in readers where reader != dispatcher { hear(news) }
  }
}

// A clock for the loops of a test that a busy machine slows down, where the system's clock would make them late.

import Runtime
import Synchronization

/// Goes on in small steps, each of which ends when every loop that it follows has had a turn, and a task, too. So the time limits of
/// what is tested, and the times that a test measures, count what these loops do, and not what others do on the machine.
public final class PacedClock: GatewayClock {
  /// How far the clock goes on in one step at most: in half a second, each loop has at least twenty turns.
  private static let stepMax = Nanoseconds.milliseconds(25)
  /// A loop without a turn for so long was stopped.
  private static let patience = Nanoseconds.seconds(10)

  private struct State {
    /// The time at `readAt` of the system's clock.
    var time = SystemClock().now()
    var readAt = SystemClock().now()
    var turns: [Turn] = []
    var isPaced: Bool { !turns.isEmpty }

    /// Goes on as the system's clock has, but at most this far.
    mutating func advance(atMost stepMax: Nanoseconds? = nil) {
      let now = SystemClock().now()
      let step = now - readAt
      time = time + (stepMax.map { min(step, $0) } ?? step)
      readAt = now
    }
  }

  private let state = Mutex(State())

  public init() {}

  /// Without a loop to follow, the clock goes like the system's.
  public func now() -> Instant {
    state.withLock { state in
      if !state.isPaced { state.advance() }
      return state.time
    }
  }
  public func wallMilliseconds() -> Int64 { SystemClock().wallMilliseconds() }

  /// Makes a loop with this clock, which waits for it.
  public func loop(_ name: String) -> EventLoop {
    let loop = EventLoop(name: name, clock: self)
    follow(loop)
    return loop
  }

  /// Waits for this loop, too, which may have another clock.
  public func follow(_ loop: EventLoop) {
    let isFirst = state.withLock { state in
      defer { state.turns.append(Turn(loop)) }
      if !state.isPaced { state.advance() }
      return !state.isPaced
    }
    if isFirst { Task { [weak self] in try await Self.run { self } } }
  }

  private static func run(_ clock: () -> PacedClock?) async throws {
    while let turns = clock()?.state.withLock(\.turns), !turns.isEmpty {
      try await letPass(.milliseconds(5), "a step of the clock")
      for turn in turns { turn.ask() }
      let asked = SystemClock().now()
      await Task.yield()
      while turns.contains(where: \.isAwaited), SystemClock().now() - asked < patience {
        try await letPass(.milliseconds(1), "a turn of each loop")
      }
      clock()?.state.withLock { state in
        state.advance(atMost: stepMax)
        state.turns.removeAll { $0.isGone || $0.isAwaited }
      }
    }
  }

  /// Whether a loop has had the turn that it was asked for.
  // @unchecked: `loop` never changes but to nil.
  private final class Turn: @unchecked Sendable {
    private weak var loop: EventLoop?
    private let isPending = Atomic<Bool>(false)

    init(_ loop: EventLoop) { self.loop = loop }

    var isGone: Bool { loop == nil }
    var isAwaited: Bool { !isGone && isPending.load(ordering: .acquiring) }

    func ask() {
      isPending.store(true, ordering: .releasing)
      loop?.execute { self.isPending.store(false, ordering: .releasing) }
    }
  }
}

extension EventLoop {
  /// A loop with a clock that goes on only while the loop, and those of its peers, keep up with it.
  public static func paced(_ name: String, with peers: [EventLoop] = []) -> EventLoop {
    let clock = PacedClock()
    for peer in peers { clock.follow(peer) }
    return clock.loop(name)
  }
}

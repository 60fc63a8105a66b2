// The time that a busy machine adds to the times that tests measure.

import Runtime

/// Adds up the delays of a loop's timers.
// @unchecked: used only on the loop.
public final class LoopLateness: @unchecked Sendable {
  private static let period = Nanoseconds.milliseconds(10)
  /// The delay of a timer on an idle machine.
  private static let ordinary = Nanoseconds.milliseconds(5)
  private let loop: EventLoop
  private var isStopped = false
  public private(set) var total = Nanoseconds.zero

  /// Starts at the current time.
  public init(_ loop: EventLoop) {
    self.loop = loop
    loop.execute { self.tick() }
  }

  /// The sum until now.
  public func stop() async -> Nanoseconds {
    await withCheckedContinuation { continuation in
      loop.execute { [self] in
        isStopped = true
        continuation.resume(returning: total)
      }
    }
  }

  private func tick() {
    guard !isStopped else { return }
    let due = loop.now + Self.period
    loop.schedule(at: due) { [self] in
      let lateness = loop.now - due
      if lateness > Self.ordinary { total = total + lateness }
      tick()
    }
  }
}

extension LoopLateness {
  /// The duration of `body` by the first loop's clock, and the sum of the loops' delays meanwhile.
  public static func time<Result>(
    on loops: [EventLoop], _ body: () async throws -> Result
  ) async rethrows -> (result: Result, time: Nanoseconds, lateness: Nanoseconds) {
    let lateness = loops.map(LoopLateness.init)
    let start = loops[0].now
    let result = try await body()
    let time = loops[0].now - start
    var total = Nanoseconds.zero
    for one in lateness { total = total + (await one.stop()) }
    return (result, time, total)
  }
}

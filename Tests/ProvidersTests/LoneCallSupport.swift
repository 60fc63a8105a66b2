// One call after a pause, sent and repeated as the dispatcher would do it.

import Runtime

@testable import Providers

/// What became of a lone call.
struct LoneCall {
  /// From handing the push over to the provider's yes, without the time for which the machine was too busy to run the
  /// provider's loop; nil when there was no yes within the ring window.
  var ringTime: Nanoseconds?
  /// The outcomes of the tries before.
  var failures: [PushOutcome] = []
  /// The connection of the try that was accepted.
  var connection: Int?
}

/// Adds up how much later than asked a loop's timers fire.
// @unchecked: touched on the loop only.
private final class LoopLateness: @unchecked Sendable {
  private static let period = Nanoseconds.milliseconds(10)
  /// So late is a timer also on an idle machine.
  private static let ordinary = Nanoseconds.milliseconds(5)
  private let loop: EventLoop
  private var isStopped = false
  private(set) var total = Nanoseconds.zero

  init(_ loop: EventLoop) {
    self.loop = loop
    loop.execute { self.tick() }
  }

  /// What has come together until now.
  func stop() async -> Nanoseconds {
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

extension ProviderBench {
  /// Rings a phone: what may have arrived is sent again after the mean first wait of `RetryPolicy`, what certainly has not
  /// after 20 ms.
  func ring(_ firstTag: Int, window: Nanoseconds = .seconds(30)) async -> LoneCall {
    var call = LoneCall()
    let start = provider.loop.now
    let deadline = start + window
    let lateness = LoopLateness(provider.loop)
    var tag = firstTag
    while provider.loop.now < deadline {
      let before = reports.results.count
      await provider.send([request(tag, within: deadline - provider.loop.now)])
      guard let result = await reports.results(before + 1)[UInt64(tag)] else { break }
      tag += 1
      switch result.outcome {
      case .accepted:
        call.ringTime = result.answeredAt - start - (await lateness.stop())
        call.connection = result.connection
        return call
      case .refused: await pass(.milliseconds(20))
      default: await pass(.milliseconds(100))
      }
      call.failures.append(result.outcome)
    }
    _ = await lateness.stop()
    return call
  }
}

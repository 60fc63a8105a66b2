// One call after a pause, sent and repeated in the same way as by the dispatcher.

import Runtime

@testable import Providers

/// The result of a lone call.
struct LoneCall {
  /// The time from the request to its acceptance: all attempts, and the planned waits between them; nil if the push was not accepted
  /// within the ring window.
  var ringTime: Nanoseconds?
  /// The outcomes of the earlier attempts.
  var failures: [PushOutcome] = []
  /// The connection of the accepted attempt.
  var connection: Int?
}

extension ProviderBench {
  /// Rings a phone. A push that may have arrived is sent again after the mean first wait of `RetryPolicy`, one that certainly
  /// has not after 20 ms.
  ///
  /// - Parameter patience: gives up on a push that has had no answer for this time, and sends another one.
  func ring(_ firstTag: Int, window: Nanoseconds = .seconds(30), patience: Nanoseconds? = nil) async -> LoneCall {
    var call = LoneCall()
    let deadline = provider.loop.now + window
    var time = Nanoseconds.zero
    var tag = firstTag
    while provider.loop.now < deadline {
      let before = reports.results.count
      let start = provider.loop.now
      await provider.send([request(tag, within: deadline - provider.loop.now)])
      if let patience {
        while reports.results.count == before, provider.loop.now < start + patience { await pass(.milliseconds(10)) }
        if reports.results.count == before {
          await provider.giveUp(on: [UInt64(tag)])
          time = time + (provider.loop.now - start)
          call.failures.append(.unknown(reason: "TimedOut"))
          tag += 1
          continue
        }
      }
      guard let result = await reports.results(before + 1)[UInt64(tag)] else { break }
      tag += 1
      time = time + (result.answeredAt - start)
      if case .accepted = result.outcome {
        call.ringTime = time
        call.connection = result.connection
        return call
      }
      let wait: Nanoseconds = if case .refused = result.outcome { .milliseconds(20) } else { .milliseconds(100) }
      await pass(wait)
      time = time + wait
      call.failures.append(result.outcome)
    }
    return call
  }
}

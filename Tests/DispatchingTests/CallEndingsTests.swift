// Tests of look-ups of calls that may have ended.

import Queue
import Runtime
import Testing

@testable import Dispatching

private let start = MachineRig.start

@Suite("Call endings") struct CallEndingsTests {
  @Test("only held calls are looked up, and hints that arrive meanwhile are looked up next")
  func coalesces() {
    var endings = CallEndings(settings: DispatcherSettings())
    endings.setListening(true)
    #expect(endings.question([], claimMax: 1, start) == nil)
    #expect(endings.due == start + .seconds(2))
    endings.hints.note([1, 2, 3])
    #expect(endings.question([2, 3, 4], claimMax: 1, start).map(Set.init) == [2, 3])
    endings.hints.note([4])
    #expect(endings.due == .distantFuture)
    #expect(endings.didAnswer()?.calls == [2, 3])
    #expect(endings.question([2, 3, 4], claimMax: 1, start + .milliseconds(5)).map(Set.init) == [4])
  }

  @Test("a call whose hint is lost is looked up all the same, the more often if no hints are heard")
  func lostHint() {
    for (isListening, interval) in [(true, Nanoseconds.seconds(2)), (false, .milliseconds(500))] {
      var endings = CallEndings(settings: DispatcherSettings())
      endings.setListening(isListening)
      #expect(endings.question([1], claimMax: 1, start)?.count == 1)
      _ = endings.didAnswer()
      #expect(endings.due == start + interval)
      #expect(endings.question([1], claimMax: 1, start + interval) == [1])
      _ = endings.didAnswer()
    }
  }

  @Test("a failed look-up is repeated together with the hints that arrived meanwhile")
  func failed() {
    var endings = CallEndings(settings: DispatcherSettings())
    endings.setListening(true)
    _ = endings.question([], claimMax: 1, start)
    endings.hints.note([1])
    _ = endings.question([1, 2], claimMax: 1, start)
    endings.hints.note([2])
    endings.didFail(start)
    #expect(endings.due == start + .milliseconds(250))
    #expect(endings.question([1, 2], claimMax: 1, start + .milliseconds(250)).map(Set.init) == [1, 2])
  }
}

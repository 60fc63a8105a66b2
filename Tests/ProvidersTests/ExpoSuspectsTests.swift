// Tests of which requests the messages of failed requests travel in.

import Runtime
import Testing

@testable import Providers

@Suite("Expo: suspects", .timeLimit(.minutes(10))) struct ExpoSuspectsTests {
  private func at(_ seconds: Int64) -> Instant { Instant(nanoseconds: seconds * 1_000_000_000) }

  /// The tags of all requests that may be made now, sorted.
  private func requests(of queue: inout ExpoSendQueue, _ now: Instant) -> [[PushRequest]] {
    var batches: [[PushRequest]] = []
    while let batch = queue.next(now) { batches.append(batch) }
    return batches.sorted { $0[0].tag < $1[0].tag }
  }

  private func tags(_ batches: [[PushRequest]]) -> [[Int]] { batches.map { $0.map { Int($0.tag) } } }

  private func make(_ tags: some Sequence<Int>) -> [PushRequest] {
    tags.map { ExpoSendQueueTests.request($0, deadline: 3600) }
  }

  /// Messages that were sent before.
  private func makeRepeats(_ tags: some Sequence<Int>) -> [PushRequest] {
    let requests = make(tags)
    for request in requests { request.isRepeat = true }
    return requests
  }

  @Test func `repeats travel in about two dozen requests of their own, and the fewer they are, the more alone`() {
    var queue = ExpoSendQueue(messagesMax: 100, requestsMax: 100)
    _ = queue.append(makeRepeats(1...60) + make(100...110), at(0))
    let batches = requests(of: &queue, at(0))
    #expect(batches.map(\.count).max() == 11)
    #expect(batches.filter { $0[0].tag < 100 }.allSatisfy { $0.count <= 2 && $0.allSatisfy(\.isRepeat) })
    #expect(tags(batches).last == Array(100...110), "first tries are not divided")
    _ = queue.append(makeRepeats(1...12), at(1))
    #expect(requests(of: &queue, at(1)).allSatisfy { $0.count == 1 })
  }

  @Test func `a request that hangs takes no place, from first tries or repeats`() {
    var queue = ExpoSendQueue(messagesMax: 100, requestsMax: 2)
    _ = queue.append(makeRepeats(1...7), at(0))
    let first = requests(of: &queue, at(0))
    #expect(tags(first) == [[1], [2], [3], [4]])
    _ = queue.append(make(10...11), at(0))
    #expect(tags(requests(of: &queue, at(0))) == [[10, 11]], "repeats keep no first try from its place")
    for batch in first { queue.didFail(batch, sentAt: at(0), isUnderWay: true, at(2)) }
    #expect(tags(requests(of: &queue, at(2))) == [[5], [6], [7]])
    _ = queue.append(make([12]), at(2))
    #expect(tags(requests(of: &queue, at(2))) == [[12]])
    _ = queue.append(make([13]), at(3))
    #expect(tags(requests(of: &queue, at(3))) == [[13]], "first tries take their places for a second")
    _ = queue.append(make([14]), at(4))
    #expect(requests(of: &queue, at(4)).isEmpty && queue.isFull, "there are as many as there may ever be")
    for batch in first { queue.finish(batch) }
    #expect(tags(requests(of: &queue, at(4))) == [[14]])
  }

  @Test func `the last places are for first tries`() {
    var queue = ExpoSendQueue(messagesMax: 1, requestsMax: 1)
    _ = queue.append(make(1...3), at(0))
    let first = (0..<3).flatMap { requests(of: &queue, at($0)) }
    #expect(tags(first) == [[1], [2], [3]])
    _ = queue.append(makeRepeats(5...6) + make([4]), at(3))
    #expect(tags(requests(of: &queue, at(3))) == [[4]])
    queue.finish(first[0])
    #expect(tags(requests(of: &queue, at(3))) == [[5]])
    _ = queue.append(make([7]), at(4))
    #expect(tags(requests(of: &queue, at(4))) == [[7]], "the fifth place is for a first try")
  }

  @Test func `a token that fails alone although others work is sent last, alone, and one request at a time`() {
    var queue = ExpoSendQueue(messagesMax: 100, requestsMax: 6)
    let (pair, bad) = (make(1...2), make([1]))
    _ = queue.append(pair, at(0))
    for batch in requests(of: &queue, at(0)) { queue.finish(batch) }
    queue.didFail(pair, sentAt: at(0), at(2))
    _ = queue.append(makeRepeats(1...2), at(2))
    for batch in requests(of: &queue, at(2)) {
      #expect(batch.count == 1)
      queue.finish(batch)
    }
    #expect(!queue.isSuspect(bad))
    queue.didTake(make([2]), at(3))
    queue.didFail(bad, sentAt: at(2), at(12))
    #expect(queue.isSuspect(bad))
    // Its next calls, beside others.
    let busy = queue.append([1, 1, 3, 4, 1].map { ExpoSendQueueTests.request($0, deadline: 3600) }, at(13))
    #expect(busy.count == 2, "it has one request at a time, and nothing waits behind it here")
    let next = requests(of: &queue, at(13))
    #expect(tags(next) == [[1], [3, 4]])
    queue.didTake(next[1], at(14))
    queue.finish(next[1])
    #expect(queue.append(bad, at(14)).count == 1, "its request is still under way")
    queue.finish(next[0])
    #expect(queue.append(bad, at(14)).isEmpty)
    #expect(tags(requests(of: &queue, at(14))) == [[1]])
    // Its own success clears it.
    queue.finish(bad)
    queue.didTake(bad, at(15))
    #expect(!queue.isSuspect(bad))
  }

  @Test func `a token that failed alone has one request that does not hang`() {
    var queue = ExpoSendQueue(messagesMax: 100, requestsMax: 6)
    queue.didFail(make([1]), sentAt: at(0), at(1))
    let calls = [1, 1].map { ExpoSendQueueTests.request($0, deadline: 3600) }
    _ = queue.append(calls + make([2]), at(2))
    let first = requests(of: &queue, at(2))
    #expect(tags(first) == [[1], [2]], "it keeps no places from repeats to others")
    queue.didFail(first[0], sentAt: at(2), isUnderWay: true, at(3))
    #expect(tags(requests(of: &queue, at(3))) == [[1]], "its connection may be dead")
    #expect(queue.requestsUnderWay == 3, "those of the same tag are counted apart")
  }

  @Test func `suspects have half as many requests, those with the fewest strikes first`() {
    var queue = ExpoSendQueue(messagesMax: 100, requestsMax: 6)
    for strike in 1...3 {
      for tag in strike...5 {
        queue.didTake(make([99]), at(0))
        queue.didFail(make([tag]), sentAt: at(0), at(1))
      }
    }
    _ = queue.append(make(1...5), at(2))
    _ = queue.append(make(6...7), at(2))
    #expect(tags(requests(of: &queue, at(2))) == [[1], [2], [3], [6, 7]])
    _ = queue.append(make([8]), at(2))
    _ = queue.append(make([9]), at(2))
    #expect(tags(requests(of: &queue, at(2))) == [[8, 9]], "places are left for others")
  }

  @Test func `an outage makes no suspects, and the first request that works ends it for all`() {
    var queue = ExpoSendQueue(messagesMax: 100, requestsMax: 100)
    for round in 0..<4 {
      _ = queue.append(round == 0 ? make(1...30) : makeRepeats(1...30), at(Int64(round)))
      for batch in requests(of: &queue, at(Int64(round))) {
        queue.finish(batch)
        queue.didFail(batch, sentAt: at(Int64(round)), at(Int64(round)))
      }
    }
    #expect(!queue.isSuspect(make([1])))
    _ = queue.append(make([1]), at(10))
    queue.didTake(queue.next(at(10))!, at(10))
    _ = queue.append(make(1...30), at(11))
    #expect(requests(of: &queue, at(11)).map(\.count) == [30])
  }

  @Test func `a token is forgotten after ten minutes, and for newer ones`() {
    var suspects = ExpoSuspects()
    func token(_ number: Int) -> ArraySlice<UInt8> { Array("\(number)".utf8)[...] }
    for number in 0...ExpoSuspects.tokensMax {
      suspects.didFail([token(number)], sentAt: at(Int64(number)), at(Int64(number)))
    }
    #expect(suspects.treatment(of: token(0)) == .any)
    #expect(suspects.treatment(of: token(1)) == .alone)
    let remembersSome = suspects.isRemembering(at(1) + ExpoSuspects.memory)
    #expect(remembersSome)
    #expect(suspects.treatment(of: token(1)) == .any)
    #expect(suspects.treatment(of: token(2)) == .alone)
  }
}

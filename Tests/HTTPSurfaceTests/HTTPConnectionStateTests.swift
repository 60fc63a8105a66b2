// The state machine of a connection, without a socket.

import Testing

@testable import HTTPSurface

struct HTTPConnectionStateTests {
  private func state() -> HTTPConnectionState { HTTPConnectionState(bodyMaxBytes: 100) }

  @Test func `a request has one time limit from its first byte to its last, and none while the gateway works on it`() {
    var state = state()
    #expect(state.timer == .idle)
    state.bytesArrived()
    #expect(state.timer == .request)
    #expect(state.headArrived(length: 10) == .none)
    #expect(state.timer == .request)
    #expect(state.bodyArrived(10) == .none)
    state.endArrived()
    #expect(state.timer == .none)
    state.answerBegan()
    #expect(state.answerEnded() == .none)
    #expect(state.timer == .idle)
    #expect(state.timerFired() == .close)
  }

  @Test func `a late request is refused once, and the rest of it is dropped`() {
    var state = state()
    state.bytesArrived()
    #expect(state.timerFired() == .refuse(.tooSlow))
    #expect(!state.isReading)
    #expect(state.timer == .linger)
    #expect(state.headArrived(length: nil) == .none)
    #expect(state.bodyArrived(1_000) == .none)
    #expect(state.refused(.malformed) == .none)
    #expect(state.timerFired() == .close)
  }

  @Test func `a body is refused if its Content-Length, or what has arrived of it, exceeds the limit`() {
    var announced = state()
    #expect(announced.headArrived(length: 101) == .refuse(.tooLarge(limit: 100)))
    var counted = state()
    #expect(counted.headArrived(length: nil) == .none)
    #expect(counted.bodyArrived(100) == .none)
    #expect(counted.bodyArrived(1) == .refuse(.tooLarge(limit: 100)))
  }

  @Test func `a refusal is sent after the answers before it`() {
    var state = state()
    for _ in 0..<2 {
      #expect(state.headArrived(length: 0) == .none)
      state.endArrived()
    }
    #expect(state.refused(.malformed) == .none)
    #expect(!state.isReading)
    #expect(state.timer == .unread)
    #expect(state.answerEnded() == .none)
    #expect(state.answerEnded() == .refuse(.malformed))
  }

  @Test func `a request that is refused in its body is answered after those before it, and gets no other answer`() {
    var state = state()
    #expect(state.headArrived(length: 0) == .none)
    state.endArrived()
    #expect(state.headArrived(length: nil) == .none)
    #expect(state.bodyArrived(101) == .none)
    #expect(state.answerEnded() == .refuse(.tooLarge(limit: 100)))
  }

  @Test func `a request that was answered before its body was read is not answered again`() {
    var answered = state()
    #expect(answered.headArrived(length: nil) == .none)
    #expect(answered.answerEnded() == .none)
    #expect(answered.timer == .request)
    #expect(answered.bodyArrived(101) == .finish)
    #expect(answered.timer == .linger)
    var halfway = state()
    #expect(halfway.headArrived(length: nil) == .none)
    halfway.answerBegan()
    #expect(halfway.timerFired() == .finish)
  }

  @Test func `the gateway works from the end of a request to its answer, and never while the client is slow`() {
    var state = state()
    #expect(!state.isWorking)
    state.bytesArrived()
    #expect(!state.isWorking)
    #expect(state.headArrived(length: 10) == .none)
    #expect(state.bodyArrived(9) == .none)
    #expect(!state.isWorking)
    #expect(state.bodyArrived(1) == .none)
    state.endArrived()
    #expect(state.isWorking)
    // The next request has begun, but the gateway still works on the first.
    #expect(state.headArrived(length: 10) == .none)
    #expect(state.isWorking)
    state.endArrived()
    // With a second complete request, the client has more than one in progress.
    #expect(!state.isWorking)
    #expect(state.answerEnded() == .none)
    #expect(state.isWorking)
    #expect(state.answerEnded() == .none)
    #expect(!state.isWorking)
  }

  @Test func `a client that sends requests without waiting gets a few answers, and then a refusal`() {
    var state = state()
    for _ in 0..<HTTPConnectionState.owedMax {
      #expect(state.headArrived(length: nil) == .none && state.isReading)
      state.endArrived()
    }
    for _ in 0..<1_000 {
      #expect(state.headArrived(length: nil) == .none && !state.isReading)
      state.endArrived()
    }
    for _ in 1..<HTTPConnectionState.owedMax { #expect(state.answerEnded() == .none) }
    #expect(state.answerEnded() == .refuse(.tooManyUnanswered))
    #expect(state.isDeaf)
    // If the client waits for each answer, the number of requests is unlimited.
    var patient = self.state()
    for _ in 0..<100 {
      #expect(patient.headArrived(length: nil) == .none)
      patient.endArrived()
      #expect(patient.answerEnded() == .none && patient.isReading && !patient.isDeaf)
    }
  }

  @Test func `a connection that is shed ends with its answer, at once if the request is complete`() {
    var whole = state()
    #expect(whole.headArrived(length: 1) == .none && whole.bodyArrived(1) == .none)
    whole.endArrived()
    #expect(whole.answerEnded() == .none)
    #expect(whole.shed() == .close && !whole.isReading)
    var early = state()
    #expect(early.headArrived(length: 10) == .none && early.answerEnded() == .none)
    #expect(early.shed() == .finish && early.timer == .linger)
    #expect(early.shed() == .none)
  }

  @Test func `a client that does not read its answers has a time limit, even before a refusal`() {
    var state = state()
    #expect(state.headArrived(length: 0) == .none)
    state.endArrived()
    state.writabilityChanged(isBlocked: true)
    #expect(state.timer == .unread)
    #expect(!state.isWorking)
    state.writabilityChanged(isBlocked: false)
    #expect(state.timer == .none)
    #expect(state.isWorking)
    state.writabilityChanged(isBlocked: true)
    #expect(state.refused(.malformed) == .none)
    #expect(state.timer == .unread)
    #expect(state.timerFired() == .close)
  }
}

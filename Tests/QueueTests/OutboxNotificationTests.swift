import Runtime
import Testing

@testable import Queue

@Suite("Notifications of the outbox")
struct OutboxNotificationTests {
  @Test("new deliveries, ended calls and resumed invalidation are distinguished; unknown notifications are ignored")
  func reading() {
    func read(_ channel: String, _ payload: String) -> OutboxNotification? {
      OutboxNotification(channel: channel, payload: payload)
    }
    #expect(read("push_outbox", "") == .bell)
    #expect(read("push_control", "void 4711") == .ended(outboxID: 4711))
    #expect(read("push_control", "void *") == .ended(outboxID: nil))
    #expect(read("push_control", "resume 7") == .invalidationResumed(lane: 7))
    let long = "void " + String(repeating: " ", count: 7_000) + "*"
    for payload in ["", "void", "void x", "resume 70000", "later 1", long] {
      #expect(read("push_control", payload) == nil)
    }
  }

  private func names(_ hints: inout EndedHints) -> [Int64]? {
    if case .mayHaveEnded(let ids) = hints.dequeue() { ids } else { nil }
  }

  @Test("hints of one turn are one event; only the first asks for it")
  func coalescing() {
    var hints = EndedHints()
    let first = [1, 2, 3].map { hints.note($0) }
    #expect(first == [true, false, false])
    let told = names(&hints)
    #expect(told == [1, 2, 3])
    if hints.dequeue() != nil { Issue.record("told twice") }
    _ = hints.note(4)
    let next = names(&hints)
    #expect(next == [4])
  }

  @Test("a notification of unnamed calls includes all named ones, and so do very many names")
  func many() {
    var hints = EndedHints()
    _ = hints.note(nil)
    _ = hints.note(5)
    if case .manyMayHaveEnded = hints.dequeue() {} else { Issue.record("names were told") }
    for id in 0...Int64(EndedHints.idsMax) { _ = hints.note(id) }
    if case .manyMayHaveEnded = hints.dequeue() {} else { Issue.record("names were told") }
    if hints.dequeue() != nil { Issue.record("told twice") }
  }

  @Test("a limited number of notifications is read in a second, then again in the next")
  func limit() {
    var limit = NotificationLimit()
    let begun = Instant(nanoseconds: 0)
    let admitted = (0..<NotificationLimit.countMax).allSatisfy { _ in limit.admit(begun + .milliseconds(999)) }
    #expect(admitted)
    let more = limit.admit(begun + .milliseconds(1_998))
    #expect(!more)
    let later = limit.admit(begun + .milliseconds(1_999))
    #expect(later)
    let large = limit.admit(begun + .milliseconds(2_500), size: NotificationLimit.bytesMax)
    #expect(large)
    let larger = limit.admit(begun + .milliseconds(2_501), size: 1)
    #expect(!larger)
  }
}

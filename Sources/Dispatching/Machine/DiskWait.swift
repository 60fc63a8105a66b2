// What people see, from its claim until that is on the server's disk. Pure.
//
// Claims do not wait for the disk. If the server crashes and loses one, and its gateway cannot be reached when it is back, nobody
// knows any more that the push was sent: so one that people see is not sent before its claim can no longer be lost. Rings do not
// wait. One question is under way at a time; what is claimed meanwhile goes into the next.

internal import Runtime

/// Collects deliveries, and says when to ask that the disk has all that was committed.
struct DiskWait {
  /// Between two questions: what is claimed meanwhile goes together.
  private static let pause = Nanoseconds.milliseconds(2)

  /// After a question that failed.
  private let retryInterval: Nanoseconds
  private var waiting: [HeldDelivery] = []
  private var asked: [HeldDelivery] = []
  private var isAsking = false
  private var notBefore = Instant(nanoseconds: .min)

  init(retryInterval: Nanoseconds) { self.retryInterval = retryInterval }

  /// When to ask next; distant future for never.
  var due: Instant { isAsking || waiting.isEmpty ? .distantFuture : notBefore }

  /// Its claim was answered, and may not be on the disk.
  mutating func add(_ entry: HeldDelivery) { waiting.append(entry) }

  /// The question is asked, about all that wait now.
  mutating func ask() {
    asked = waiting
    waiting = []
    isAsking = true
  }

  /// The disk has what was asked about, which comes back.
  mutating func didAnswer(_ now: Instant) -> [HeldDelivery] {
    defer { asked = [] }
    isAsking = false
    notBefore = now + Self.pause
    return asked
  }

  /// Nobody knows.
  mutating func didFail(_ now: Instant) {
    waiting = asked + waiting
    asked = []
    isAsking = false
    notBefore = now + retryInterval
  }
}

// Tests of how Expo's messages are batched, and of the bytes of a request.

import PushModel
import Runtime
import TestSeed
import Testing

@testable import Providers

private let start = Instant(nanoseconds: 0)

@Suite(.timeLimit(.minutes(10))) struct ExpoSendQueueTests {
  static func request(
    _ tag: Int, token: String? = nil, deadline: Int64 = 60, body: String = #"{"title":"t"}"#, collapseID: String? = nil
  ) -> PushRequest {
    PushRequest(
      tag: UInt64(tag), deliveryID: DeliveryID(high: 0, low: UInt64(tag)), kind: .invite, environment: .production,
      token: Array((token ?? "token-\(tag)").utf8), body: Array(body.utf8),
      collapseID: collapseID.map { Array($0.utf8) },
      deadline: Instant(nanoseconds: deadline * 1_000_000_000),
      expiresAtMilliseconds: 1_700_000_000_000 + deadline * 1000)
  }

  private func tags(_ batch: [PushRequest]?) -> [Int]? { batch?.map { Int($0.tag) } }

  private func tokens(_ projects: [[String]]) -> [[[UInt8]]] { projects.map { $0.map { Array($0.utf8) } } }

  @Test func `the first message is sent at once, and those that queue up are sent together`() {
    var queue = ExpoSendQueue(messagesMax: 100, requestsMax: 2)
    var underWay: [[PushRequest]] = []
    func next(_ milliseconds: Int64 = 0) -> [Int]? {
      guard let batch = queue.next(start + .milliseconds(milliseconds)) else { return nil }
      underWay.append(batch)
      return tags(batch)
    }
    _ = queue.append([Self.request(1)], start)
    #expect(next() == [1])
    _ = queue.append([Self.request(2), Self.request(3)], start)
    #expect(next() == [2, 3])
    for tag in 4...250 { _ = queue.append([Self.request(tag)], start) }
    #expect(next() == nil)
    #expect(queue.requestsUnderWay == 2)
    queue.finish(underWay[0])
    #expect(next() == Array(4...103))
    #expect(next() == nil)
    queue.finish(underWay[1])
    #expect(next() == Array(104...203))
    // One that is slow takes no place after a second.
    #expect(next(999) == nil && queue.nextPlaceAt(after: start) == start + .seconds(1))
    #expect(queue.nextPlaceAt(after: start + .seconds(1)) == nil, "a timer in the past would fire for ever")
    #expect(next(1000) == Array(204...250))
    for batch in underWay[2...] { queue.finish(batch) }
    #expect(next(1000) == nil)
    #expect(queue.isEmpty && queue.requestsUnderWay == 0)
  }

  @Test func `a batch of several projects is split by the tokens in Expo's error`() throws {
    var queue = ExpoSendQueue(messagesMax: 100, requestsMax: 6)
    _ = queue.append((1...5).map { Self.request($0) }, start)
    let first = queue.next(start)
    let batch = try #require(first)
    queue.finish(batch)
    queue.append(batch, splitBy: tokens([["token-1", "token-4"], ["token-2"], ["unknown"]]))
    var groups: [[Int]] = []
    while let next = queue.next(start) { groups.append(tags(next)!) }
    #expect(Set(groups) == [[1, 4], [2], [3], [5]])
  }

  @Test(arguments: [[], [["token-1", "token-2", "token-3"]], [["elsewhere"]]] as [[[String]]])
  func `a batch that Expo's error does not split is sent one message at a time`(projects: [[String]]) {
    var queue = ExpoSendQueue(messagesMax: 100, requestsMax: 6)
    queue.append((1...3).map { Self.request($0) }, splitBy: tokens(projects))
    var groups: [[Int]] = []
    while let next = queue.next(start) { groups.append(tags(next)!) }
    #expect(Set(groups) == [[1], [2], [3]])
  }

  @Test func `a batch that is too long is halved, and later requests grow by one message each`() {
    var queue = ExpoSendQueue(messagesMax: 10, requestsMax: 100)
    _ = queue.append((1...30).map { Self.request($0) }, start)
    let first = queue.next(start)!
    #expect(first.count == 10)
    queue.sendFewer(than: first.count)
    queue.append(halvesOf: first)
    #expect(queue.messagesAtOnce == 5)
    #expect(Set([tags(queue.next(start))!, tags(queue.next(start))!]) == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])
    queue.didTake(Array(first.prefix(4)), start)
    #expect(queue.messagesAtOnce == 5, "a short request says nothing about longer ones")
    queue.didTake(Array(first.prefix(5)), start)
    #expect(tags(queue.next(start)) == Array(11...16))
    for _ in 0..<20 { queue.didTake(first, start) }
    #expect(queue.messagesAtOnce == 10)
    queue.append(halvesOf: [])
    #expect(queue.messagesAtOnce == 10)
  }

  @Test func `a batch that is refused as a whole is halved, and later ones are as long as before`() {
    var queue = ExpoSendQueue(messagesMax: 10, requestsMax: 100)
    _ = queue.append((1...20).map { Self.request($0) }, start)
    queue.append(halvesOf: queue.next(start)!)
    #expect(Set([tags(queue.next(start))!, tags(queue.next(start))!]) == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])
    #expect(tags(queue.next(start)) == Array(11...20))
  }

  @Test func `a message that waits past its deadline is removed`() {
    var queue = ExpoSendQueue(messagesMax: 100, requestsMax: 1)
    _ = queue.append([Self.request(1)], start)
    _ = queue.next(start)
    #expect(queue.earliestDeadline == nil)
    let later = [Self.request(2, deadline: 30), Self.request(3, deadline: 10), Self.request(4, deadline: 20)]
    _ = queue.append(later, start)
    queue.append([Self.request(5, deadline: 5)], splitBy: [])
    #expect(queue.earliestDeadline == Instant(nanoseconds: 5_000_000_000))
    #expect(queue.removeExpired(at: Instant(nanoseconds: 4_999_999_999)).isEmpty)
    #expect(queue.removeExpired(at: Instant(nanoseconds: 10_000_000_000)).map(\.tag) == [3, 5])
    #expect(queue.removeAll().map(\.tag) == [2, 4])
    #expect(queue.isEmpty)
  }

  @Test func `every message leaves the queue exactly once in any order of events`() {
    var random = TestSeed.generator(8)
    for _ in 0..<200 {
      let (messagesMax, requestsMax) = (Int.random(in: 1...7, using: &random), Int.random(in: 1...3, using: &random))
      var queue = ExpoSendQueue(messagesMax: messagesMax, requestsMax: requestsMax)
      var (next, out, underWay) = (0, [Int](), [[PushRequest]]())
      for step in 0..<60 {
        switch Int.random(in: 0..<5, using: &random) {
        case 0, 1:
          let count = Int.random(in: 0...9, using: &random)
          out += queue.append(
            (next..<next + count).map { Self.request($0, deadline: Int64.random(in: 0...60, using: &random)) },
            Instant(nanoseconds: Int64(step))
          ).map { Int($0.tag) }
          next += count
        case 2:
          while let batch = queue.next(start) {
            #expect(!batch.isEmpty && batch.count <= messagesMax)
            underWay.append(batch)
            #expect(underWay.count <= queue.placesMax)
          }
        case 3 where Bool.random(using: &random):
          guard let batch = underWay.randomElement(using: &random) else { continue }
          let now = Instant(nanoseconds: Int64(step))
          queue.didFail(batch, sentAt: Instant(nanoseconds: Int64(step - 3)), isUnderWay: true, now)
        case 3:
          guard let batch = underWay.popLast() else { continue }
          queue.finish(batch)
          let now = Instant(nanoseconds: Int64(step))
          switch Int.random(in: 0..<4, using: &random) {
          case 0: queue.append(batch, splitBy: [batch.prefix(2).map { Array($0.token) }])
          case 1: queue.append(halvesOf: batch)
          case 2:
            queue.didFail(batch, sentAt: Instant(nanoseconds: Int64(step - 3)), now)
            for request in batch { request.isRepeat = true }
            out += queue.append(batch, now).map { Int($0.tag) }
          default:
            queue.didTake(batch, now)
            out += tags(batch)!
          }
        default:
          out += queue.removeExpired(at: Instant(nanoseconds: Int64(step) * 1_000_000_000)).map { Int($0.tag) }
        }
      }
      out += underWay.flatMap { tags($0)! } + queue.removeAll().map { Int($0.tag) }
      #expect(out.sorted() == Array(0..<next), "\(TestSeed.comment)")
    }
  }

  @Test func `the body contains the messages, each with Expo's fields first`() {
    let requests = [
      Self.request(1, token: "ExponentPushToken[abc]", deadline: 30, body: #"{"title":"Ring","data":{"callId":"c"}}"#),
      Self.request(2, token: #"odd"\"#, deadline: 5, body: #"{"sound":null}"#, collapseID: "call-1"),
      Self.request(3, token: "late", deadline: 1),
    ]
    let body = ExpoRequestWriter.body(requests, now: Instant(nanoseconds: 1_500_000_000))
    #expect(
      String(decoding: body, as: UTF8.self) == """
        [{"to":"ExponentPushToken[abc]","priority":"high","expiration":1700000030,"ttl":28,"title":"Ring","data":{"callId":"c"}},\
        {"to":"odd\\"\\\\","priority":"high","expiration":1700000005,"ttl":3,"collapseId":"call-1","sound":null},\
        {"to":"late","priority":"high","expiration":1700000001,"ttl":0,"title":"t"}]
        """)
  }
}

// Tests of the Expo provider with a server that shares no code with ours.

import Foundation
import HTTP2TestSupport
import PushModel
import Runtime
import Synchronization
import TestTime
import Testing

@testable import Providers

/// Collects the reports of a provider, and wakes the tasks that wait for them.
final class ProviderReports: Sendable {
  private struct State {
    var results: [PushResult] = []
    var capacities: [Int] = []
    var clockSkews: [Nanoseconds] = []
    var hedges = 0
    var renewals = 0
    var batches = 0
    var waiting: (count: Int, continuation: CheckedContinuation<Void, Never>)?
    var waitingForCapacity: (isEnough: @Sendable (Int) -> Bool, continuation: CheckedContinuation<Void, Never>)?
  }

  private let state = Mutex(State())

  var results: [PushResult] { state.withLock { $0.results } }
  var capacities: [Int] { state.withLock { $0.capacities } }
  var clockSkews: [Nanoseconds] { state.withLock { $0.clockSkews } }
  /// Results for requests that were not sent.
  var hedges: Int { state.withLock { $0.hedges } }
  /// How often the credentials have changed.
  var renewals: Int { state.withLock { $0.renewals } }
  /// The number of reports in which the results arrived.
  var batches: Int { state.withLock { $0.batches } }

  func receive(_ event: PushProviderEvent) {
    state.withLock { state in
      switch event {
      case .results(let results):
        state.results += results
        state.batches += 1
        if let waiting = state.waiting, state.results.count >= waiting.count {
          state.waiting = nil
          waiting.continuation.resume()
        }
      case .capacity(let capacity):
        state.capacities.append(capacity)
        if let waiting = state.waitingForCapacity, waiting.isEnough(capacity) {
          state.waitingForCapacity = nil
          waiting.continuation.resume()
        }
      case .hedged(let tags): state.hedges += tags.count
      case .clockSkew(let skew): state.clockSkews.append(skew)
      case .renewed: state.renewals += 1
      case .divided: break
      }
    }
  }

  /// Returns all results by tag as soon as this number has arrived.
  func results(_ count: Int) async -> [UInt64: PushResult] {
    await withCheckedContinuation { continuation in
      state.withLock { state in
        if state.results.count >= count { continuation.resume() } else { state.waiting = (count, continuation) }
      }
    }
    return Dictionary(grouping: results, by: \.tag).mapValues {
      precondition($0.count == 1, "two results for one request")
      return $0[0]
    }
  }

  /// Returns when the last reported capacity satisfies the condition.
  func capacity(where isEnough: @escaping @Sendable (Int) -> Bool) async {
    await withCheckedContinuation { continuation in
      state.withLock { state in
        if let last = state.capacities.last, isEnough(last) {
          continuation.resume()
        } else {
          state.waitingForCapacity = (isEnough, continuation)
        }
      }
    }
  }
}

@Suite(.timeLimit(.minutes(10))) struct ExpoProviderTests {
  private struct Fixture {
    let provider: ExpoProvider
    let reports = ProviderReports()

    init(
      accessToken: String? = nil, loop: EventLoop = EventLoop(name: "expo-test"),
      change: (inout ExpoConfiguration) -> Void = { _ in }
    ) throws {
      let server = try CurlTestServer.shared.get()
      var configuration = ExpoConfiguration(
        url: "https://localhost:\(server.port)/", accessToken: accessToken, caFile: server.caFile)
      // Unless a test is about a limit, none ends because the server is slow.
      configuration.answerTimeout = .seconds(60)
      configuration.requestTimeout = .seconds(60)
      configuration.placeTime = .seconds(60)
      configuration.connections.waitLong()
      change(&configuration)
      provider = ExpoProvider(configuration: configuration, loop: loop)
    }

    func start() async {
      await provider.start { [reports] in reports.receive($0) }
    }

    func stop(within grace: Nanoseconds = .seconds(5)) async {
      await provider.shutDown(by: SystemClock().now() + grace)
      provider.loop.stop()
    }
  }

  private func request(_ tag: Int, _ token: String, in time: Nanoseconds = .seconds(120)) -> PushRequest {
    PushRequest(
      tag: UInt64(tag), deliveryID: DeliveryID(high: 0, low: 0), kind: .invite, environment: .production,
      token: Array(token.utf8), body: Array(#"{"title":"Ring","data":{"callId":"c"}}"#.utf8), collapseID: nil,
      deadline: SystemClock().now() + time, expiresAtMilliseconds: SystemClock().wallMilliseconds() + time.milliseconds)
  }

  private func messageID(_ result: PushResult?) -> [String] {
    guard case .accepted(let id?)? = result?.outcome else { return [] }
    return id.split(separator: "-", maxSplits: 2).map(String.init)
  }

  @Test func `the pushes of one turn are sent in one request, and each gets its own ticket`() async throws {
    let fixture = try Fixture()
    await fixture.start()
    let batch = (1...50).map { request($0, $0 % 10 == 0 ? "dead-\($0)" : "token-\($0)") }
    await fixture.provider.send(batch)
    let results = await fixture.reports.results(50)
    for tag in 1...50 {
      let result = try #require(results[UInt64(tag)])
      #expect(result.status == 200)
      if tag % 10 == 0 {
        #expect(result.outcome == .tokenInvalid(reason: "DeviceNotRegistered", since: nil))
      } else {
        #expect(messageID(result).dropFirst() == ["50", "token-\(tag)"])
      }
      #expect(try #require(result.sentAt) <= result.answeredAt)
    }
    #expect(fixture.reports.batches == 1)
    #expect(fixture.reports.capacities.first == 600)
    await fixture.stop()
  }

  @Test func `the head contains the access token and the compression`() async throws {
    let fixture = try Fixture(accessToken: "abc")
    await fixture.start()
    await fixture.provider.send([request(1, "head-1")])
    #expect(await fixture.reports.results(1)[1]?.outcome == .accepted(messageID: "Bearer abc|application/json|None"))
    await fixture.provider.send((2...20).map { request($0, "head-\($0)") })
    #expect(await fixture.reports.results(20)[2]?.outcome == .accepted(messageID: "Bearer abc|application/json|gzip"))
    await fixture.stop()
  }

  @Test func `many pushes are sent in requests of a hundred over six connections`() async throws {
    let fixture = try Fixture()
    await fixture.start()
    await fixture.provider.send((0..<1_050).map { request($0, "slow-\($0)") })
    let results = await fixture.reports.results(1_050)
    let ids = results.values.map { messageID($0) }
    #expect(Set(ids.map { $0[1] }) == ["100", "50"])
    #expect(Set(ids.map { $0[0] }).count == 6)
    await fixture.stop()
  }

  @Test func `while its connection is made a message is withdrawn, and others are sent`() async throws {
    let fixture = try Fixture()
    await fixture.start()
    let (provider, batch) = (fixture.provider, [request(1, "token-1"), request(2, "token-2")])
    // In one turn the request is made and the message is withdrawn.
    await withCheckedContinuation { continuation in
      provider.loop.execute {
        provider.assumeIsolated { $0.send(batch) }
        provider.loop.atEndOfTurn { provider.loop.atEndOfTurn { provider.assumeIsolated { $0.withdraw([1]) } } }
        continuation.resume()
      }
    }
    let results = await fixture.reports.results(2)
    #expect(results[1]?.outcome == .refused(reason: "Withdrawn"))
    #expect(results[1]?.sentAt == nil)
    #expect(messageID(results[2]).dropFirst() == ["1", "token-2"])
    await fixture.stop()
  }

  @Test func `a message that was withdrawn after its request had left does not go into another request`() {
    let now = SystemClock().now()
    let batch = (1...3).map { request($0, "mixed-\($0)") }
    let flight = ExpoFlight(
      batch, accessToken: nil, startedAt: now, patience: .seconds(2), lateAnswerTimeout: .seconds(5))
    #expect(flight.leave(now))
    #expect(flight.withdraw([2, 9], now).isEmpty)
    #expect(flight.unanswered.map(\.tag) == [1, 2, 3])
    #expect(flight.refuseWithdrawn(now).map(\.tag) == [2])
    #expect(flight.unanswered.map(\.tag) == [1, 3])
    // libcurl must not write it again on another connection.
    #expect(!flight.leave(now))
  }

  @Test func `a request is doubted after a while, or when an owner gives up, and its answer still counts`() {
    let now = SystemClock().now()
    let batch = (1...2).map { request($0, "mixed-\($0)", in: .seconds(30)) }
    func flight() -> ExpoFlight {
      ExpoFlight(batch, accessToken: nil, startedAt: now, patience: .seconds(2), lateAnswerTimeout: .seconds(5))
    }
    let unwritten = flight()
    #expect(unwritten.expire(at: now + .seconds(9)).isEmpty)
    #expect(!unwritten.isDoubted, "it was not written")
    let silent = flight()
    #expect(silent.leave(now))
    #expect(silent.earliestDeadline == now + .seconds(2) && !silent.isDoubted)
    #expect(silent.expire(at: now + .seconds(2)).isEmpty)
    #expect(silent.isDoubted)
    #expect(silent.earliestDeadline == batch[0].deadline + .seconds(5))
    let abandoned = flight()
    #expect(!abandoned.giveUp(on: [1]), "it was not written")
    #expect(abandoned.leave(now))
    #expect(batch.allSatisfy { $0.leftAt == now })
    #expect(!abandoned.giveUp(on: [9]) && !abandoned.isDoubted)
    #expect(abandoned.giveUp(on: [1]) && abandoned.isDoubted)
    #expect(!abandoned.giveUp(on: [2]), "it is doubted once")
    #expect(abandoned.unanswered.count == 2)
  }

  @Test func `messages of several projects are sent again, in one request for each project`() async throws {
    let fixture = try Fixture()
    await fixture.start()
    await fixture.provider.send((0..<9).map { request($0, "mixed-\($0 % 3)-\($0)") })
    let results = await fixture.reports.results(9)
    for tag in 0..<9 { #expect(messageID(results[UInt64(tag)]).dropFirst() == ["3", "mixed-\(tag % 3)-\(tag)"]) }
    await fixture.stop()
  }

  @Test func `when every place is taken, the youngest request that hangs gives its place up`() async throws {
    let fixture = try Fixture { $0.requestsMax = 1 }
    await fixture.start()
    for tag in 1...5 {
      let request = request(tag, "hang-\(tag)")
      await fixture.provider.send([request])
      try await eventually("it is written") { await fixture.provider.areWritten([request]) }
      await fixture.provider.giveUp(on: [UInt64(tag)])
    }
    #expect(fixture.reports.results.isEmpty)
    await fixture.provider.send([request(6, "token-6")])
    let results = await fixture.reports.results(2)
    #expect(results[5]?.outcome == .unknown(reason: "TimedOut"))
    #expect(results[5]?.sentAt != nil)
    #expect(messageID(results[6]).last == "token-6")
    await fixture.stop(within: .milliseconds(100))
  }

  @Test func `a connection that cannot be made stops nothing because another request hangs`() async throws {
    let server = try CurlTestServer.shared.get()
    let relay = try TCPRelay(to: UInt16(server.port))
    defer { relay.stop() }
    let fixture = try Fixture { $0.url = "https://localhost:\(relay.port)/" }
    await fixture.start()
    let silent = request(1, "hang-1")
    await fixture.provider.send([silent])
    try await eventually("it is written") { await fixture.provider.areWritten([silent]) }
    relay.move(to: 1)  // where nobody listens
    await fixture.provider.send([request(2, "token-2")])
    let failed = await fixture.reports.results(1)[2]
    #expect(failed != nil && failed?.sentAt == nil)
    relay.move(to: UInt16(server.port))
    await fixture.provider.send([request(3, "token-3")])
    #expect(messageID(await fixture.reports.results(2)[3]).last == "token-3")
    await fixture.stop(within: .milliseconds(100))
  }

  @Test func `each push of a batch has its outcome at its own deadline`() async throws {
    let fixture = try Fixture()
    await fixture.start()
    // There is a connection already, so that the requests leave before their deadlines.
    await fixture.provider.send([request(0, "token-0")])
    _ = await fixture.reports.results(1)
    let clock = SystemClock()
    let start = clock.now()
    await fixture.provider.send([
      request(1, "hang-1", in: .seconds(12)), request(2, "hang-2", in: .seconds(8)),
      request(3, "token-3", in: .zero),
    ])
    let all = await fixture.reports.results(4)
    #expect(all[3]?.outcome == .expired)
    #expect(all[3]?.sentAt == nil)
    let (first, second) = (try #require(all[2]), try #require(all[1]))
    #expect(first.outcome == .unknown(reason: "TimedOut"))
    #expect(first.sentAt != nil)
    #expect(second.outcome == .unknown(reason: "TimedOut"))
    #expect(first.answeredAt - start >= .seconds(8))
    #expect(second.answeredAt - start >= .seconds(12))
    #expect(first.answeredAt < second.answeredAt)
    await fixture.stop()
  }

  @Test func `a gateway error in HTML is a failure of the provider`() async throws {
    let fixture = try Fixture()
    await fixture.start()
    await fixture.provider.send([request(1, "html-1")])
    let result = await fixture.reports.results(1)[1]
    #expect(result?.outcome == .unavailable(reason: "HTTP502", after: nil))
    #expect(result?.status == 502)
    await fixture.stop()
  }

  @Test func `if the number of tickets is wrong, every outcome is unknown`() async throws {
    let fixture = try Fixture()
    await fixture.start()
    await fixture.provider.send([request(1, "short-1"), request(2, "token-2")])
    let results = await fixture.reports.results(2)
    #expect(results[1]?.outcome == .unknown(reason: "TicketCountMismatch"))
    #expect(results[2]?.outcome == .unknown(reason: "TicketCountMismatch"))
    await fixture.stop()
  }

  @Test(arguments: [("big", "HTTP413"), ("odd", "VALIDATION_ERROR")])
  func `of a batch that is refused for one of its messages, only that message is dead`(
    kind: String, reason: String
  ) async throws {
    let fixture = try Fixture()
    await fixture.start()
    await fixture.provider.send((0..<60).map { request($0, $0 == 41 ? "\(kind)-41" : "token-\($0)") })
    let results = await fixture.reports.results(60)
    for tag in 0..<60 {
      if tag == 41 {
        #expect(results[41]?.outcome == .rejected(reason: reason))
      } else {
        #expect(messageID(results[UInt64(tag)]).last == "token-\(tag)")
      }
    }
    await fixture.stop()
  }

  @Test func `a token at which requests hang takes no others with it`() async throws {
    let fixture = try Fixture(loop: .paced("expo-test")) {
      $0.answerTimeout = .seconds(5)
    }
    await fixture.start()
    // The calls of one turn share a request. Their owner gives up on those that hang, and sends them again.
    var tag = 0
    func ring(_ tokens: [String]) async throws -> Int {
      let calls = tokens.map { token in
        tag += 1
        return request(tag, token, in: .seconds(120))
      }
      let good = calls.filter { !$0.token.starts(with: "hang".utf8) }
      await fixture.provider.send(calls)
      try await eventually("the good ones are written") { await fixture.provider.areWritten(good) }
      let hanging = await fixture.provider.batches(calls.filter { $0.token.starts(with: "hang".utf8) })
      let lost = await zip(good, fixture.provider.batches(good)).filter { $1 != nil && hanging.contains($1) }.map(\.0)
      let answered = Set(good.map(\.tag)).subtracting(lost.map(\.tag))
      try await eventually("the others are answered") {
        fixture.reports.results.count { answered.contains($0.tag) } == answered.count
      }
      guard !lost.isEmpty else { return 0 }
      await fixture.provider.giveUp(on: Set(calls.map(\.tag)))
      let again = calls.map { call in
        request(1_000 + Int(call.tag), String(decoding: call.token, as: UTF8.self), in: .seconds(120))
      }
      for request in again { request.isRepeat = true }
      await fixture.provider.send(again)
      let tags = Set(lost.map { 1_000 + $0.tag })
      try await eventually("they are answered") {
        fixture.reports.results.count { tags.contains($0.tag) } == tags.count
      }
      for result in fixture.reports.results where tags.contains(result.tag) {
        #expect(messageID(result).dropFirst().first == "1", "alone in its request")
      }
      await fixture.provider.giveUp(on: Set(again.map(\.tag)))
      return lost.count
    }
    var losses: [Int] = []
    for round in 0..<10 { losses.append(try await ring(["token-\(round)a", "hang-1", "token-\(round)b"])) }
    #expect(losses == [2] + Array(repeating: 0, count: 9), "only those of its first request had to wait")
    await fixture.stop(within: .milliseconds(100))
  }

  @Test func `a shutdown finishes the requests under way`() async throws {
    let fixture = try Fixture()
    await fixture.start()
    await fixture.provider.send([request(1, "slow-1")])
    await fixture.provider.send([])  // one turn later, when the request is under way
    await fixture.provider.shutDown(by: SystemClock().now() + .seconds(60))
    #expect(messageID(fixture.reports.results.first).last == "slow-1")
    #expect(fixture.reports.capacities.last == 0)
    await fixture.provider.send([request(2, "token-2")])
    let results = await fixture.reports.results(2)
    #expect(results[2]?.outcome == .refused(reason: "ShuttingDown"))
    fixture.provider.loop.stop()
  }

  @Test func `a shutdown refuses the pushes that were not sent`() async throws {
    let fixture = try Fixture { $0.requestsMax = 1 }
    await fixture.start()
    await fixture.provider.send([request(1, "hang-1")])
    await fixture.provider.send([request(2, "token-2")])  // one turn later, when the only allowed request is under way
    await fixture.stop(within: .milliseconds(100))
    let results = await fixture.reports.results(2)
    #expect(results[1]?.outcome == .unknown(reason: "ShuttingDown"))
    #expect(results[2]?.outcome == .refused(reason: "ShuttingDown"))
  }

  @Test func `a shutdown waits at most until its deadline`() async throws {
    let fixture = try Fixture()
    await fixture.start()
    await fixture.provider.send([request(1, "hang-1")])
    await fixture.stop(within: .milliseconds(200))
    let results = await fixture.reports.results(1)
    #expect(results[1]?.outcome == .unknown(reason: "ShuttingDown"))
  }

  @Test func `an access token file is read, and the error for a faulty one names its fault`() throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString).path()
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let file = folder + "/token"
    try SecretFixture.write("  abc123\n", to: file)
    #expect(try ExpoConfiguration.readAccessToken(file: file) == "abc123")
    for content in ["", "\n", "two words", "two\nlines", "töken", "nul\0"] {
      try SecretFixture.write(content, to: file)
      let error = #expect(throws: ExpoConfiguration.AccessTokenError.malformed(path: file)) {
        _ = try ExpoConfiguration.readAccessToken(file: file)
      }
      #expect(error.map { !"\($0)".contains("two") && "\($0)".contains(file) } == true)
    }
    #expect(throws: ExpoConfiguration.AccessTokenError.file(.init(.missing, path: file + "x"))) {
      _ = try ExpoConfiguration.readAccessToken(file: file + "x")
    }
  }
}

extension ExpoProvider {
  fileprivate func areWritten(_ requests: [PushRequest]) -> Bool { requests.allSatisfy { $0.leftAt != nil } }
  fileprivate func batches(_ requests: [PushRequest]) -> [Int?] { requests.map(\.batch) }
}

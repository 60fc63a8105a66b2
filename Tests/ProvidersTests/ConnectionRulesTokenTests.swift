// Tests of when the token in use is renewed, replaced, and kept.

import Logging
import Runtime
import Synchronization
import Testing

@testable import Providers

@Suite("Connection rules, tokens", .timeLimit(.minutes(10))) struct ConnectionRulesTokenTests {
  /// A token source that answers when the test says so, and records the requests.
  private final class PatientSource: ProviderTokenSource {
    typealias Answer = Result<ProviderToken, ProviderTokenError>
    private struct Question {
      let refused: ProviderToken?
      let continuation: CheckedContinuation<Answer, Never>
    }
    private let questions: AsyncStream<Question>
    private let ask: AsyncStream<Question>.Continuation
    init() { (questions, ask) = AsyncStream<Question>.makeStream() }

    func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
      let answer: Answer = await withCheckedContinuation { continuation in
        _ = ask.yield(Question(refused: refused, continuation: continuation))
      }
      return try answer.get()
    }

    /// Waits for the next request, returns its refused token, and answers.
    func answer(_ answer: Answer, meanwhile: @Sendable () async -> Void = {}) async -> ProviderToken? {
      for await question in questions {
        await meanwhile()
        question.continuation.resume(returning: answer)
        return question.refused
      }
      return nil
    }
  }

  /// A token on a loop, and whether it has arrived.
  // @unchecked: `token` is touched on the loop only.
  private final class Bench: @unchecked Sendable {
    let loop = EventLoop(name: "token-test")
    let source = PatientSource()
    let clock = SettableClock()
    let token: RenewingToken
    private let arrivals = AsyncStream<Void>.makeStream()

    init() {
      token = RenewingToken(source, scheme: "bearer ", clock: clock, loop: loop, logger: silentLogger)
      token.didArrive = { [arrivals] in arrivals.continuation.yield() }
    }

    deinit { loop.stop() }

    func perform<Value: Sendable>(_ body: @escaping @Sendable (RenewingToken) -> Value) async -> Value {
      await withCheckedContinuation { continuation in
        loop.execute { [self] in continuation.resume(returning: body(token)) }
      }
    }

    func arrival() async { for await _ in arrivals.stream { return } }

    func make(_ name: String, age: Nanoseconds = .zero, renewedIn time: Nanoseconds = .seconds(2700)) -> ProviderToken {
      let now = clock.wallMilliseconds()
      return ProviderToken(
        value: Array(name.utf8), issuedAtMilliseconds: now - age.milliseconds,
        renewAtMilliseconds: now + time.milliseconds)
    }

    /// Starts with this token in use.
    func start(with first: ProviderToken) async {
      await perform { $0.start() }
      #expect(await source.answer(.success(first)) == nil)
      await arrival()
    }
  }

  @Test
  func `the token in the authorization header is the text after the scheme`() async {
    let bench = Bench()
    await bench.start(with: bench.make("one"))
    #expect(await bench.perform { $0.authorization } == Array("bearer one".utf8))
  }

  @Test
  func `a token is replaced once, however many requests are refused with it`() async {
    let bench = Bench()
    let (one, two) = (bench.make("one"), bench.make("two"))
    await bench.start(with: one)
    #expect(await bench.perform { token in (0..<3).allSatisfy { _ in token.replace(one) } }, "nothing should leave")
    #expect(await bench.source.answer(.success(two)) == one)
    await bench.arrival()
    #expect(await bench.perform { $0.replace(one) } == false, "it has been replaced since")
    #expect(await bench.perform { $0.current } == two)
  }

  @Test
  func `if a token is refused during its renewal, it is requested again as a refused one`() async {
    let bench = Bench()
    let (one, two) = (bench.make("one", renewedIn: .zero), bench.make("two"))
    await bench.start(with: one)
    let early = await bench.source.answer(.success(one)) { _ = await bench.perform { $0.replace(one) } }
    #expect(early == nil, "the renewal knew nothing of the refusal")
    #expect(await bench.source.answer(.success(two)) == one)
    await bench.arrival()
    #expect(await bench.perform { $0.isWorthAnotherTry(after: one) })
  }

  @Test
  func `if the source returns the refused token again, no further request is sent with it`() async {
    let bench = Bench()
    let one = bench.make("one")
    await bench.start(with: one)
    _ = await bench.perform { $0.replace(one) }
    #expect(await bench.source.answer(.success(one)) == one)
    await bench.arrival()
    #expect(await bench.perform { $0.isWorthAnotherTry(after: one) } == false)
  }

  @Test(arguments: [10, 70])
  func `a token that was renewed too early is replaced by its predecessor, if that may still be valid`(
    ageMinutes: Int64
  ) async {
    let bench = Bench()
    let one = bench.make("one", age: .seconds(ageMinutes * 60), renewedIn: .zero)
    let two = bench.make("two")
    await bench.start(with: one)
    #expect(await bench.source.answer(.success(two)) == nil)
    await bench.arrival()
    await bench.perform { $0.useOlder(than: two) }
    #expect(await bench.perform { $0.current } == (ageMinutes < 60 ? one : two))
    // Other requests in flight with the same token have no further effect.
    await bench.perform { $0.useOlder(than: two) }
    #expect(await bench.perform { $0.current } == (ageMinutes < 60 ? one : two))
  }
}

// When the token in use is renewed, replaced, and held on to.

import Logging
import Runtime
import Synchronization
import Testing

@testable import Providers

@Suite("Connection rules, tokens", .timeLimit(.minutes(10))) struct ConnectionRulesTokenTests {
  /// Answers when it is told to, and keeps what it was asked.
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

    /// Waits for the next question, looks at it, and answers.
    func answer(_ answer: Answer, meanwhile: @Sendable () async -> Void = {}) async -> ProviderToken? {
      for await question in questions {
        await meanwhile()
        question.continuation.resume(returning: answer)
        return question.refused
      }
      return nil
    }
  }

  /// A token on a loop, and whether it came.
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

    /// Started with this token in use.
    func start(with first: ProviderToken) async {
      await perform { $0.start() }
      #expect(await source.answer(.success(first)) == nil)
      await arrival()
    }
  }

  @Test("the token is what follows the scheme")
  func authorization() async {
    let bench = Bench()
    await bench.start(with: bench.make("one"))
    #expect(await bench.perform { $0.authorization } == Array("bearer one".utf8))
  }

  @Test("however many requests are refused with a token, it is replaced once")
  func replacedOnce() async {
    let bench = Bench()
    let (one, two) = (bench.make("one"), bench.make("two"))
    await bench.start(with: one)
    #expect(await bench.perform { token in (0..<3).allSatisfy { _ in token.replace(one) } }, "nothing should leave")
    #expect(await bench.source.answer(.success(two)) == one)
    await bench.arrival()
    #expect(await bench.perform { $0.replace(one) } == false, "it has been replaced since")
    #expect(await bench.perform { $0.current } == two)
  }

  @Test("a token refused while its renewal was asked for is asked for again, as a refused one")
  func refusedDuringRenewal() async {
    let bench = Bench()
    let (one, two) = (bench.make("one", renewedIn: .zero), bench.make("two"))
    await bench.start(with: one)
    let early = await bench.source.answer(.success(one)) { _ = await bench.perform { $0.replace(one) } }
    #expect(early == nil, "the renewal knew nothing of the refusal")
    #expect(await bench.source.answer(.success(two)) == one)
    await bench.arrival()
    #expect(await bench.perform { $0.isWorthAnotherTry(after: one) })
  }

  @Test("a refused token that the source holds on to is not worth another try, until there is another")
  func heldOnTo() async {
    let bench = Bench()
    let one = bench.make("one")
    await bench.start(with: one)
    _ = await bench.perform { $0.replace(one) }
    #expect(await bench.source.answer(.success(one)) == one)
    await bench.arrival()
    #expect(await bench.perform { $0.isWorthAnotherTry(after: one) } == false)
  }

  @Test("a token that came too early gives way to the one before it, if that may still be good", arguments: [10, 70])
  func tooEarly(ageMinutes: Int64) async {
    let bench = Bench()
    let one = bench.make("one", age: .seconds(ageMinutes * 60), renewedIn: .zero)
    let two = bench.make("two")
    await bench.start(with: one)
    #expect(await bench.source.answer(.success(two)) == nil)
    await bench.arrival()
    await bench.perform { $0.useOlder(than: two) }
    #expect(await bench.perform { $0.current } == (ageMinutes < 60 ? one : two))
    // Others on the wire with the same token change nothing more.
    await bench.perform { $0.useOlder(than: two) }
    #expect(await bench.perform { $0.current } == (ageMinutes < 60 ? one : two))
  }
}

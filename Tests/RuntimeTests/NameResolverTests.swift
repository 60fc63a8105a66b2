// Tests of resolving names, with a resolver that fails or does not answer.

import Dispatch
import Synchronization
import TestTime
import Testing

@testable import Runtime

@Suite(.timeLimit(.minutes(10))) struct NameResolverTests {
  /// A resolver whose answers the test gives.
  private final class Names: Sendable {
    struct State {
      var answers: [String: NameResolver.Outcome] = [:]
      var asked: [String] = []
      var blocked: [String: DispatchSemaphore] = [:]
    }
    let state = Mutex(State())

    func lookUp(_ host: String) -> NameResolver.Outcome {
      let (blocked, _) = state.withLock { state in
        state.asked.append(host)
        return (state.blocked[host], 0)
      }
      blocked?.wait()
      let missing = NameResolver.Outcome.failure(SocketAddress.ResolutionError(description: "\(host) is not known"))
      return state.withLock { $0.answers[host] ?? missing }
    }

    func set(_ host: String, _ address: String) {
      state.withLock { $0.answers[host] = .success([SocketAddress(numericHost: address, port: 0)!]) }
    }
    func remove(_ host: String) { state.withLock { $0.answers[host] = nil } }
    func block(_ host: String) { state.withLock { $0.blocked[host] = DispatchSemaphore(value: 0) } }
    func unblock(_ host: String) {
      let semaphore = state.withLock { $0.blocked.removeValue(forKey: host) }
      for _ in 0..<100 { semaphore?.signal() }
    }
    var asked: [String] { state.withLock { $0.asked } }
  }

  private let names = Names()

  private func resolver(_ change: (inout NameResolver.Limits) -> Void = { _ in }) -> NameResolver {
    var limits = NameResolver.Limits()
    limits.timeLimit = .milliseconds(1_500)
    limits.timeLimitWithStale = .milliseconds(300)
    change(&limits)
    return NameResolver(limits: limits) { [names] in names.lookUp($0) }
  }

  private func ask(_ resolver: NameResolver, _ host: String, _ loop: EventLoop) async -> String {
    await withCheckedContinuation { continuation in
      loop.execute {
        resolver.resolve(host, port: 443, on: loop) { outcome in
          switch outcome {
          case .success(let addresses):
            continuation.resume(returning: addresses.map(\.description).joined(separator: " "))
          case .failure(let error): continuation.resume(returning: error.description)
          }
        }
      }
    }
  }

  @Test func `a resolver that does not answer delays no look-up of another name`() async throws {
    let loop = EventLoop.paced("resolver-test")
    defer { loop.stop() }
    let resolver = resolver()
    names.block("silent")
    names.set("good", "127.0.0.1")
    async let silent = ask(resolver, "silent", loop)
    #expect(await ask(resolver, "good", loop) == "127.0.0.1:443")
    #expect(await silent == "silent cannot be resolved: no answer within 1.5 s")
    names.unblock("silent")
  }

  @Test func `the last answer is used if the resolver fails or does not answer`() async throws {
    let loop = EventLoop.paced("resolver-test")
    defer { loop.stop() }
    let resolver = resolver()
    names.set("host", "127.0.0.1")
    #expect(await ask(resolver, "host", loop) == "127.0.0.1:443")
    names.remove("host")
    #expect(await ask(resolver, "host", loop) == "127.0.0.1:443")
    names.set("host", "127.0.0.2")
    names.block("host")
    #expect(await ask(resolver, "host", loop) == "127.0.0.1:443")
    names.unblock("host")
    try await eventually("a name that moves is followed") { await ask(resolver, "host", loop) == "127.0.0.2:443" }
  }

  @Test func `an answer that is too old is not used`() async throws {
    let loop = EventLoop.paced("resolver-test")
    defer { loop.stop() }
    let resolver = resolver { $0.staleTime = .zero }
    names.set("host", "127.0.0.1")
    #expect(await ask(resolver, "host", loop) == "127.0.0.1:443")
    names.remove("host")
    #expect(await ask(resolver, "host", loop) == "host is not known")
  }

  @Test func `simultaneous look-ups of one name share a single query`() async throws {
    let loop = EventLoop.paced("resolver-test")
    defer { loop.stop() }
    let resolver = resolver { $0.timeLimit = .seconds(20) }
    names.set("host", "127.0.0.1")
    names.block("host")
    async let first = ask(resolver, "host", loop)
    async let second = ask(resolver, "host", loop)
    async let third = ask(resolver, "host", loop)
    try await eventually("the name is asked for") { !names.asked.isEmpty }
    await withCheckedContinuation { continuation in loop.execute { continuation.resume() } }
    names.unblock("host")
    #expect(await [first, second, third] == [String](repeating: "127.0.0.1:443", count: 3))
    #expect(names.asked.count <= 2)
  }

  @Test func `the number of simultaneous look-ups is limited`() async throws {
    let loop = EventLoop.paced("resolver-test")
    defer { loop.stop() }
    let resolver = resolver { $0.lookupsMax = 1 }
    names.block("one")
    names.set("two", "127.0.0.2")
    async let one = ask(resolver, "one", loop)
    try await eventually("the name is asked for") { !names.asked.isEmpty }
    #expect(await ask(resolver, "two", loop).contains("no answer"))
    #expect(names.asked == ["one"])
    names.unblock("one")
    _ = await one
    try await eventually("there is room") { await ask(resolver, "two", loop) == "127.0.0.2:443" }
  }

  @Test func `a numeric address needs no resolver`() async throws {
    let loop = EventLoop.paced("resolver-test")
    defer { loop.stop() }
    #expect(await ask(resolver(), "127.0.0.9", loop) == "127.0.0.9:443")
    #expect(await ask(resolver(), "::1", loop) == "[::1]:443")
    #expect(names.asked.isEmpty)
  }
}

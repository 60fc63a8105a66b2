// Tests of when a provider token is created, and of its content.

import Runtime
import Synchronization
import Testing

@testable import Providers

/// A clock that stands still until the test sets it.
final class SettableClock: GatewayClock {
  private let wall = Mutex<Int64>(1_700_000_000_000)
  func now() -> Instant { Instant(nanoseconds: wallMilliseconds() * 1_000_000) }
  func wallMilliseconds() -> Int64 { wall.withLock { $0 } }
  func advance(minutes: Int64) { wall.withLock { $0 += minutes * 60_000 } }
}

@Suite(.timeLimit(.minutes(10))) struct APNsTokenSourceTests {
  let clock = SettableClock()
  let key: SigningKey
  let source: APNsTokenSource

  init() throws {
    key = try SigningKey.generate(for: .es256)
    source = APNsTokenSource(APNsCredentials(teamID: "TEAM123456", keyID: "KEY1234567", key: key), clock: clock)
  }

  @Test func `a token is signed with ES256, and has key id, team id and a numeric time`() async throws {
    let token = try #require(JSONWebToken(compact: try await source.token(replacing: nil).value))
    #expect(String(decoding: token.header, as: UTF8.self) == #"{"alg":"ES256","kid":"KEY1234567"}"#)
    #expect(String(decoding: token.claims, as: UTF8.self) == #"{"iss":"TEAM123456","iat":1700000000}"#)
    #expect(token.signature.count == 64)
    #expect(token.isSigned(by: try key.verifyingKey()))
  }

  @Test func `one token is used for 45 minutes`() async throws {
    let first = try await source.token(replacing: nil)
    clock.advance(minutes: 44)
    #expect(try await source.token(replacing: nil) == first)
    clock.advance(minutes: 1)
    #expect(try await source.token(replacing: nil) != first)
  }

  @Test func `a refused token is replaced only after 20 minutes`() async throws {
    let first = try await source.token(replacing: nil)
    clock.advance(minutes: 19)
    #expect(try await source.token(replacing: first) == first)
    clock.advance(minutes: 1)
    let second = try await source.token(replacing: first)
    #expect(second != first)
    // A request that was refused with the first token gets the second one, not a third.
    #expect(try await source.token(replacing: first) == second)
  }

  @Test func `a token from the future is replaced after the clock was set back`() async throws {
    let first = try await source.token(replacing: nil)
    clock.advance(minutes: -5)
    #expect(try await source.token(replacing: nil) != first)
  }
}

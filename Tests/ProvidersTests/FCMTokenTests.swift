// Tests of the exchange of access tokens, and of its times, with a token endpoint that shares no code with ours.

import Foundation
import Runtime
import Synchronization
import TestTime
import Testing

@testable import Providers

/// A clock that stands still until the test sets it.
private final class StandingClock: GatewayClock {
  private let milliseconds = Mutex<Int64>(1_700_000_000_000)

  func now() -> Instant { Instant(nanoseconds: milliseconds.withLock { $0 } * 1_000_000) }
  func wallMilliseconds() -> Int64 { milliseconds.withLock { $0 } }
  func advance(_ seconds: Int64) { milliseconds.withLock { $0 += seconds * 1000 } }
}

@Suite(.timeLimit(.minutes(10))) struct FCMTokenTests {
  // MARK: - The exchange

  @Test func `the form has the fields that Google requires`() {
    #expect(
      String(decoding: FCMTokenExchange.body(assertion: Array("a.b-_.c".utf8)), as: UTF8.self)
        == "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=a.b-_.c")
  }

  private func read(_ status: UInt16, _ body: String) throws -> FCMTokenExchange.Grant {
    try FCMTokenExchange.read(
      CurlResponse(status: status, body: Array(body.utf8), sentAt: Instant(nanoseconds: 0)))
  }

  @Test func `the answer with an access token is parsed`() throws {
    let grant = try read(200, #"{"access_token":"ya29.c.b0A","expires_in":3599,"token_type":"Bearer"}"#)
    #expect(grant == .init(value: Array("ya29.c.b0A".utf8), lifetimeSeconds: 3599))
    #expect(try read(200, #"{"access_token":"x","expires_in":999999999}"#).lifetimeSeconds == 86_400)
  }

  @Test(
    arguments: [
      (400, #"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#, "clock"),
      (401, #"{"error":"invalid_client"}"#, "invalid_client"), (404, "<html>not found</html>", "token_uri"),
      (503, "", "503"), (400, #"{"error":"x\ny"}"#, "unreadable"),
      (400, #"{"error":"\#(String(repeating: "x", count: 49))"}"#, "unreadable"), (400, "{}", "no error code"),
      (200, "", "usable"), (200, "{}", "usable"),
      (200, #"{"access_token":"secret"}"#, "usable"),
      (200, #"{"access_token":"secret","expires_in":"3600"}"#, "usable"),
      (200, #"{"access_token":"secret\r\nx: y","expires_in":3600}"#, "usable"),
      (200, #"{"access_token":"secret","expires_in":0}"#, "usable"),
      (200, #"{"access_token":"secret","expires_in":3600,"token_type":"mac"}"#, "bearer"),
    ] as [(UInt16, String, String)])
  func `the error for an answer without an access token has its reason, and quotes no token`(
    status: UInt16, body: String, mentions: String
  ) throws {
    let error = try #require(throws: ProviderTokenError.self) { _ = try read(status, body) }
    #expect(error.description.contains(mentions))
    #expect(!error.description.contains("secret"))
  }

  // MARK: - When an exchange is made

  private struct Fixture {
    let clock = StandingClock()
    let source: FCMTokenSource

    init(_ name: String) throws {
      let server = try CurlTestServer.shared.get()
      source = FCMTokenSource(
        account: FCMTestAccount.account(tokenURI: "https://localhost:\(server.port)/token?\(name)"),
        caFile: server.caFile, loop: .paced("token-test"), clock: clock)
    }

    /// The token as text, or the text of the error.
    func token(replacing refused: ProviderToken? = nil) async -> String {
      do {
        return String(decoding: try await source.token(replacing: refused).value, as: UTF8.self)
      } catch {
        return "\(error)"
      }
    }
  }

  @Test func `simultaneous requests for a token share one exchange`() async throws {
    let fixture = try Fixture("crowd")
    let tokens = await withTaskGroup(of: String.self) { group in
      for _ in 0..<20 { group.addTask { await fixture.token() } }
      return await group.reduce(into: Set<String>()) { $0.insert($1) }
    }
    #expect(tokens == ["crowd-1"])
    fixture.source.loop.stop()
  }

  @Test func `a token is renewed five minutes before it expires`() async throws {
    let fixture = try Fixture("hour")
    let token = try await fixture.source.token(replacing: nil)
    #expect(token.renewAtMilliseconds - token.issuedAtMilliseconds == 3300 * 1000)
    fixture.clock.advance(3299)
    #expect(await fixture.token() == "hour-1")
    fixture.clock.advance(1)
    #expect(await fixture.token() == "hour-2")
    fixture.source.loop.stop()
  }

  @Test func `a short-lived token is renewed after half of its lifetime`() async throws {
    let fixture = try Fixture("short")
    #expect(await fixture.token() == "short-1")
    fixture.clock.advance(199)
    #expect(await fixture.token() == "short-1")
    fixture.clock.advance(1)
    #expect(await fixture.token() == "short-2")
    fixture.source.loop.stop()
  }

  @Test func `a refused token is replaced, however young it is, and everybody gets its successor`() async throws {
    let fixture = try Fixture("refused")
    let start = fixture.source.loop.now
    let token = try await fixture.source.token(replacing: nil)
    let tokens = await withTaskGroup(of: String.self) { group in
      for _ in 0..<20 { group.addTask { await fixture.token(replacing: token) } }
      return await group.reduce(into: Set<String>()) { $0.insert($1) }
    }
    #expect(tokens == ["refused-2"])
    #expect(await fixture.token() == "refused-2")
    #expect(fixture.source.loop.now - start >= FCMTokenSource.interval, "two exchanges began within the interval")
    fixture.source.loop.stop()
  }

  @Test func `while there is no token, an exchange starts in each interval, and whoever comes sooner waits for it`()
    async throws
  {
    let fixture = try Fixture("fail2")
    let loop = fixture.source.loop
    let start = loop.now
    #expect(await fixture.token().contains("invalid_grant"))
    #expect(await fixture.token().contains("invalid_grant"))
    #expect(await fixture.token() == "fail2-3")
    #expect(loop.now - start >= .seconds(2), "three exchanges began within two intervals")
    #expect(loop.now - start < .seconds(8), "a caller without a token waited for its exchange to time out")
    loop.stop()
  }

  @Test func `an exchange that hangs does not delay the next one, and the first grant ends all waits`() async throws {
    let fixture = try Fixture("sleepy2")
    let loop = fixture.source.loop
    let start = loop.now
    let tokens = await withTaskGroup(of: String.self) { group in
      for _ in 0..<5 { group.addTask { await fixture.token() } }
      return await group.reduce(into: Set<String>()) { $0.insert($1) }
    }
    // The third exchange, or one after it if the machine is so slow that its answer takes an interval.
    #expect(tokens.count == 1 && tokens.first?.hasPrefix("sleepy2-") == true, "\(tokens)")
    #expect(loop.now - start >= .seconds(2), "more than one exchange began within an interval")
    #expect(loop.now - start < .seconds(8), "it waited for the exchanges that hang")
    loop.stop()
  }

  @Test func `a token that is still valid stays in use if its renewal fails`() async throws {
    let fixture = try Fixture("once")
    #expect(await fixture.token() == "once-1")
    fixture.clock.advance(3300)
    #expect(await fixture.token() == "once-1")
    fixture.clock.advance(299)
    #expect(await fixture.token() == "once-1")
    fixture.clock.advance(1)
    #expect(await fixture.token().contains("invalid_grant"))
    fixture.source.loop.stop()
  }

  @Test func `the error names the account and the cause`() async throws {
    let fixture = try Fixture("odd")
    let error = await fixture.token()
    #expect(error.contains("push@porteiro-test.iam.gserviceaccount.com"))
    #expect(error.contains("access_token"))
    fixture.source.loop.stop()
  }
}

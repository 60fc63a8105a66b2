// Answers that no provider should give, over the network: none may crash the gateway, delete a token, count as a success
// unless it is one, or use more memory than its limit.

import HTTP2TestSupport
import Runtime
import TestTime
import Testing

@testable import Providers

/// A body, and the statuses with which it is sent.
struct HostileBody: Sendable, CustomTestStringConvertible {
  static let statuses = [200, 302, 400, 403, 404, 410, 418, 429, 500, 502, 503, 599]

  let testDescription: String
  let bytes: [UInt8]
  let statuses: [Int]

  init(_ description: String, _ bytes: [UInt8], statuses: [Int] = HostileBody.statuses) {
    (testDescription, self.bytes, self.statuses) = (description, bytes, statuses)
  }

  init(_ description: String, _ text: String, statuses: [Int] = HostileBody.statuses) {
    self.init(description, Array(text.utf8), statuses: statuses)
  }

  /// Every word that one of the three providers reads in an answer, each with `word` appended.
  static func answer(_ word: String, padding: Int = 0) -> String {
    """
    {"padding":"\(String(repeating: "x", count: padding))","reason":"Unregistered\(word)","timestamp":1,\
    "name":["projects/p/messages/1"],"error":{"status":"NOT_FOUND\(word)","details":[\
    {"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"UNREGISTERED\(word)"}]},\
    "errors":[{"code":"\(word)","message":"m"}]}
    """
  }

  static let all = [
    HostileBody("empty", ""),
    HostileBody("HTML", "<!DOCTYPE html>\n<title>Error 502 (Server Error)!!1</title>"),
    HostileBody("cut off", #"{"reason":"Unregistered","name":"projects/p/messages/1","data":[{"status":"ok","id":"#),
    HostileBody("one byte too many", #"{"reason":"Unregistered","name":"n","data":[{"status":"ok","id":"i"}]}}"#),
    HostileBody("arrays in arrays", String(repeating: "[", count: 100_000), statuses: [200, 404]),
    HostileBody(
      "objects in objects",
      String(repeating: #"{"error":"#, count: 20_000) + "1" + String(repeating: "}", count: 20_000),
      statuses: [404]),
    HostileBody("null", "null"),
    HostileBody(
      "wrong types",
      #"{"reason":7,"timestamp":"now","name":{"a":1},"error":"UNREGISTERED","errors":{"code":1},"data":"ok"}"#),
    HostileBody(
      "wrong types inside",
      #"{"reason":["Unregistered"],"name":null,"error":{"status":[],"details":[[],7,{"@type":[]},null]},"#
        + #""errors":[7,[]],"data":null}"#),
    HostileBody("not UTF-8", Array(answer("").utf8).map { $0 == UInt8(ascii: "U") ? 0xFF : $0 }),
    HostileBody("NUL", [UInt8](repeating: 0, count: 1000)),
    HostileBody("NUL in words", answer("\0")),
    HostileBody("escaped NUL in words", answer(#"\u0000"#)),
    HostileBody("half a surrogate in words", answer(#"\ud800"#)),
    HostileBody("a line end in words", answer(#"\r\ninjected: 1"#)),
    HostileBody("words without an end", answer(String(repeating: "A", count: 1000))),
    HostileBody("5 MB", answer("", padding: 5_000_000), statuses: [200, 410]),
  ]
}

/// A token source that always returns the same token.
private struct FixedToken: ProviderTokenSource {
  func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    ProviderToken(value: Array("t".utf8), issuedAtMilliseconds: 0, renewAtMilliseconds: .max / 2)
  }
}

@Suite(.timeLimit(.minutes(10))) struct HostileBodiesTests {
  /// Hexadecimal, as APNs requires of tokens; the requested status follows.
  private static let mark = "c0de0"

  /// Answers each request with the status in its device token.
  private func server(_ body: [UInt8], _ fields: [(String, String)] = []) throws -> HTTP2TestServer {
    try HTTP2TestServer { exchange in
      let text = (exchange.message.headers.text(":path") ?? "") + String(decoding: exchange.message.body, as: UTF8.self)
      let status = text.firstRange(of: Self.mark).flatMap { Int(text[$0.upperBound...].prefix(3)) } ?? 200
      var headers = HTTP2HeaderBlock()
      headers.add(":status", String(status))
      for (name, value) in fields { headers.add(name: Array(name.utf8), value: Array(value.utf8)) }
      exchange.connection.session.respond(to: exchange.stream, headers, body: body)
      Self.flush(exchange.connection, timesMax: body.count / 1000)
    }
  }

  /// A large body is sent in pieces, whether or not the client sends anything meanwhile.
  private static func flush(_ connection: HTTP2TestServer.Connection, timesMax: Int) {
    connection.flushLater()
    guard timesMax > 0 else { return }
    connection.loop.schedule(at: connection.loop.now + .milliseconds(1)) {
      flush(connection, timesMax: timesMax - 1)
    }
  }

  private func apns(_ server: HTTP2TestServer) throws -> HTTP2Provider {
    let endpoint = try server.endpoint()
    var pool = APNsConfiguration.defaultPool
    pool.waitTimeout = .seconds(30)
    return HTTP2Provider(
      APNsConfiguration(topic: "t", production: endpoint, sandbox: endpoint, pool: pool), tokens: FixedToken(),
      loop: .paced("apns-test", with: [server.loop]), logger: silent)
  }

  private func fcm(_ server: HTTP2TestServer) throws -> HTTP2Provider {
    var configuration = FCMConfiguration(projectID: "p", endpoint: try server.endpoint())
    configuration.pool.waitTimeout = .seconds(30)
    return HTTP2Provider(
      configuration, tokens: FixedToken(), loop: .paced("fcm-test", with: [server.loop]), logger: silent)
  }

  private func expo(url: String, caFile: String, peers: [EventLoop] = []) -> ExpoProvider {
    var configuration = ExpoConfiguration(url: url, caFile: caFile)
    configuration.messagesMax = 1
    return ExpoProvider(configuration: configuration, loop: .paced("expo-test", with: peers))
  }

  private func expo(_ server: HTTP2TestServer) -> ExpoProvider {
    expo(url: "https://localhost:\(server.port)", caFile: TestCertificates.shared.caFile, peers: [server.loop])
  }

  private enum Kind: CaseIterable {
    case apns, fcm, expo
  }

  private func outcomes(_ kind: Kind, _ server: HTTP2TestServer, _ statuses: [Int]) async throws -> [Int: PushOutcome] {
    defer { withExtendedLifetime(server) {} }  // no client keeps the server alive
    return switch kind {
    case .apns: await outcomes(try apns(server), statuses)
    case .fcm: await outcomes(try fcm(server), statuses)
    case .expo: await outcomes(expo(server), statuses)
    }
  }

  private func outcomes(_ provider: some PushProvider, _ statuses: [Int]) async -> [Int: PushOutcome] {
    let results = await provider.results(ofPushesTo: statuses.map { "\(Self.mark)\($0)" }, body: "{}")
    return Dictionary(uniqueKeysWithValues: statuses.indices.map { (statuses[$0], results[UInt64($0)]!.outcome) })
  }

  // MARK: - Bodies

  @Test(arguments: HostileBody.all)
  func `no body of APNs crashes the gateway, deletes a token or counts as a success unless it is one`(body: HostileBody)
    async throws
  {
    let outcomes = try await outcomes(.apns, server(body.bytes), body.statuses)
    for (status, outcome) in outcomes {
      let reason = "status \(status) without a readable reason"
      let expected: PushOutcome =
        switch status {
        case 200: .accepted(messageID: nil)
        case 302: .unavailable(reason: "unexpected status 302", after: nil)
        case 403: .unauthorized(reason: reason)
        case 429: .throttled(reason: reason, after: nil, isLaneWide: false)
        default: .unavailable(reason: reason, after: nil)
        }
      #expect(outcome == expected)
    }
  }

  @Test(arguments: HostileBody.all)
  func `no body of FCM crashes the gateway, deletes a token or counts as a success unless it is one`(body: HostileBody)
    async throws
  {
    let outcomes = try await outcomes(.fcm, server(body.bytes), body.statuses)
    for (status, outcome) in outcomes {
      let reason = "HTTP\(status)"
      let expected: PushOutcome =
        switch status {
        case 200: .unknown(reason: "MalformedAnswer")
        case 302, 403, 404: .unauthorized(reason: reason)
        case 429: .throttled(reason: reason, after: nil, isLaneWide: false)
        case 400..<500: .rejected(reason: reason)
        default: .unavailable(reason: reason, after: nil)
        }
      #expect(outcome == expected)
    }
  }

  private func expoRefusal(_ status: Int) -> PushOutcome {
    let reason = "HTTP\(status)"
    return switch status {
    case 302, 403, 404: .unauthorized(reason: reason)
    case 429: .throttled(reason: reason, after: nil, isLaneWide: true)
    case 400..<500: .rejected(reason: reason)
    default: .unavailable(reason: reason, after: nil)
    }
  }

  @Test(arguments: HostileBody.all)
  func `no body of Expo's tickets crashes the gateway, deletes a token or counts as a success unless it is one`(
    body: HostileBody
  ) async throws {
    let outcomes = try await outcomes(.expo, server(body.bytes), body.statuses)
    for (status, outcome) in outcomes {
      if body.bytes.count > ExpoConfiguration().answerBytesMax {
        #expect(outcome == .unknown(reason: "ResponseTooLarge"))
      } else if status == 200, outcome != expoRefusal(200) {  // a 200 with an unreadable error is also an error
        #expect(outcome == .unknown(reason: "MalformedAnswer"))
      } else {
        #expect(outcome == expoRefusal(status))
      }
    }
  }

  @Test(arguments: HostileBody.all)
  func `no body of Expo's receipts crashes the gateway, deletes a token or counts as a success unless it is one`(
    body: HostileBody
  ) async throws {
    let server = try server(body.bytes)
    let provider = expo(server)
    defer { withExtendedLifetime(server) {} }
    await provider.start { _ in }
    for status in body.statuses {
      let answer = await provider.receipts(of: ["\(Self.mark)\(status)"])
      if body.bytes.count > ExpoConfiguration().answerBytesMax {
        #expect(answer == .failed(.unavailable(reason: "ResponseTooLarge", after: nil)))
      } else if status == 200, answer != .failed(expoRefusal(200)) {
        #expect(answer == .failed(.unavailable(reason: "MalformedAnswer", after: nil)))
      } else {
        #expect(answer == .failed(expoRefusal(status)))
      }
    }
    await provider.shutDown(by: SystemClock().now() + .seconds(5))
    provider.loop.stop()
  }

  @Test func `an answer is read only up to its size limit`() async throws {
    for (padding, isRead) in [(60_000, true), (70_000, false)] {
      let padding = String(repeating: "x", count: padding)
      let server = try server(Array(#"{"padding":"\#(padding)","name":"n","reason":"Unregistered"}"#.utf8))
      #expect(
        try await outcomes(.fcm, server, [200])
          == [200: isRead ? .accepted(messageID: "n") : .unknown(reason: "MalformedAnswer")])
      let unread = PushOutcome.unavailable(reason: "status 410 without a readable reason", after: nil)
      #expect(
        try await outcomes(.apns, server, [410])
          == [410: isRead ? .tokenInvalid(reason: "Unregistered", since: nil) : unread])
    }
  }

  // MARK: - Values of valid answers

  @Test func `a message id that is not one word is not stored`() async throws {
    for id in [#"a\u0000b"#, #"a\nb"#, "", String(repeating: "x", count: 257), "né"] {
      let body = #"{"name":"\#(id)","data":[{"status":"ok","id":"\#(id)"}]}"#
      let server = try server(Array(body.utf8), [("apns-id", String(repeating: "x", count: 257))])
      for kind in Kind.allCases {
        #expect(try await outcomes(kind, server, [200]) == [200: .accepted(messageID: nil)])
      }
    }
  }

  @Test(arguments: ["99999999999999999999", #""now""#, "1.5e300", "null"])
  func `an invalid time of death counts as unknown`(timestamp: String) async throws {
    let server = try server(Array(#"{"reason":"Unregistered","timestamp":\#(timestamp)}"#.utf8))
    #expect(try await outcomes(.apns, server, [410]) == [410: .tokenInvalid(reason: "Unregistered", since: nil)])
  }

  // MARK: - Headers and framing

  @Test(arguments: [
    "99999999999999999999", "-5", "soon", "", "Fri, 31 Dec 9999 23:59:59 GMT", "Sat, 01 Jan 0000 00:00:00 GMT",
  ])
  func `Retry-After is limited to a day`(value: String) async throws {
    for date in ["Fri, 31 Dec 9999 23:59:59 GMT", "Sat, 01 Jan 0000 00:00:00 GMT", "today"] {
      let server = try server([], [("retry-after", value), ("date", date)])
      for kind in Kind.allCases {
        let outcomes = try await outcomes(kind, server, [429])
        guard case .throttled(_, let after, _)? = outcomes[429] else {
          Issue.record("\(outcomes)")
          continue
        }
        #expect(after.map { .zero <= $0 && $0 <= .seconds(86_400) } != false)
      }
    }
  }

  @Test(arguments: ["1000", "3"])
  func `a body whose length differs from Content-Length is no answer`(length: String) async throws {
    let body = Array(#"{"name":"n","data":[{"status":"ok","id":"i"}]}"#.utf8)
    let server = try server(body, [("content-length", length)])
    for kind in Kind.allCases {
      let outcomes = try await outcomes(kind, server, [200])
      guard case .unknown? = outcomes[200] else {
        Issue.record("\(outcomes)")
        continue
      }
    }
  }

  @Test func `over HTTP 1 a body may end with its connection, but not before its Content-Length`() async throws {
    let server = try CurlTestServer.shared.get()
    func outcome(_ path: String) async -> PushOutcome? {
      await outcomes(expo(url: "https://localhost:\(server.port)/\(path)?", caFile: server.caFile), [200])[200]
    }
    #expect(await outcome("unframed") == .accepted(messageID: "unframed"))
    #expect(await outcome("cut") == .unknown(reason: "ConnectionLost"))
  }
}

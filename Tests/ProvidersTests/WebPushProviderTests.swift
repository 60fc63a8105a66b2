// Tests of the web push provider over real TLS: what it sends, what it refuses, and that an origin in trouble affects no other.

import Foundation
import HTTP2TestSupport
import Logging
import PushModel
import Runtime
import Simulators
import TestTime
import Testing

@testable import Providers

@Suite("Web push provider", .timeLimit(.minutes(10))) struct WebPushProviderTests {
  // MARK: - What is sent

  @Test func `the simulator accepts pushes and decrypts what the gateway has encrypted`() async throws {
    let suite = try await SimulatorSuite.start()
    let credentials = try WebPushCredentials(
      keyFile: suite.material.webPushKeyFile, subject: "mailto:ops@example.com")
    let bench = try ProviderBench.webPush(
      suite.webPush.port, caFile: suite.material.authorityFile, peers: [suite.webPush.loop], credentials: credentials)
    await bench.start()
    let browser = suite.material.browser
    await bench.provider.send(
      (0..<300).map {
        bench.request($0, token: browser.token(endpoint: suite.endpoints.webPushEndpoint("browser-\($0)")))
      })
    let results = await bench.reports.results(300)
    #expect(results.values.allSatisfy { $0.outcome == .accepted(messageID: nil) && $0.status == 201 })
    let pushes = try await suite.webPush.waitForAccepted(300)
    #expect(pushes.allSatisfy { $0.payload == Array(#"{"callId":"c","from":"u"}"#.utf8) })
    #expect(pushes.allSatisfy { $0.kind == "high" && (1...30).contains(Int($0.detail("ttl") ?? "") ?? -1) })
    #expect(Set(pushes.map(\.token)) == Set((0..<300).map { "browser-\($0)" }))
    let counters = await suite.webPush.counters
    #expect(counters.violations.isEmpty && counters.refused.isEmpty)
    await bench.stop()
    await suite.stop()
  }

  @Test func `the subscription that the simulators write is accepted`() async throws {
    let suite = try await SimulatorSuite.start()
    let file = try Data(contentsOf: URL(filePath: suite.material.webPushSubscriptionFile))
    let subscription = try JSONDecoder().decode(BrowserSubscription.self, from: file)
    let token = "\(subscription.endpoint)#auth=\(subscription.keys.auth)&p256dh=\(subscription.keys.p256dh)"
    let credentials = try WebPushCredentials(key: suite.material.webPushKey, subject: "mailto:ops@example.com")
    let bench = try ProviderBench.webPush(
      suite.webPush.port, caFile: suite.material.authorityFile, peers: [suite.webPush.loop], credentials: credentials)
    await bench.start()
    #expect(await bench.push(0, to: token).outcome.isAccepted)
    await bench.stop()
    await suite.stop()
  }

  @Test func `a request has the fields of RFC 8030, and a topic that reveals nothing`() async throws {
    let server = try HTTP2TestServer {
      $0.connection.hold($0)
      $0.respond(201)
    }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    let token = WebPushFixture.token(server.port, "x/y?z=1")
    func request(_ tag: Int, _ manner: PushManner, collapse: String?, within time: Nanoseconds) -> PushRequest {
      PushRequest(
        tag: UInt64(tag), deliveryID: DeliveryID(high: 1, low: UInt64(tag)), kind: .missedCall,
        environment: .production,
        token: Array(token.utf8), body: Array("{}".utf8), collapseID: collapse.map { Array($0.utf8) },
        deadline: bench.provider.loop.now + time, expiresAtMilliseconds: 0, manner: manner)
    }
    await bench.provider.send([
      request(0, PushManner(apnsType: .alert), collapse: "call-1", within: .milliseconds(5_900)),
      request(1, PushManner(apnsType: .alert, priority: .normal), collapse: nil, within: .milliseconds(900)),
      request(
        2, PushManner(apnsType: .alert, priority: .low, timeToLiveMax: 3), collapse: "call-1", within: .seconds(90)),
      request(3, PushManner(apnsType: .alert), collapse: "call-2", within: .seconds(5_000_000)),
    ])
    _ = await bench.reports.results(4)
    let heads = await server.perform { server in
      server.held.sorted { $0.stream < $1.stream }.map { held in
        [":method", ":scheme", ":authority", ":path", "content-encoding", "content-type", "ttl", "urgency", "topic"].map
        {
          name in held.message.headers.fields[name] ?? "-"
        }
      }
    }
    try #require(heads.count == 4)
    for head in heads {
      #expect(
        head[..<6] == [
          "POST", "https", "127.0.0.1:\(server.port)", "/push/x/y?z=1", "aes128gcm", "application/octet-stream",
        ])
      #expect(head[8] == "-" || head[8].count == 32 && Base64URL.decode(Array(head[8].utf8)) != nil)
      #expect(!head[8].contains("call"))
    }
    #expect(heads[0][6] == "5" || heads[0][6] == "4")
    #expect(heads[1][6] == "0")
    #expect(heads[2][6] == "3")
    #expect(heads[3][6] == "2419200")
    #expect(heads.map { $0[7] } == ["high", "normal", "low", "high"])
    #expect(heads[0][8] == heads[2][8] && heads[0][8] != heads[3][8] && heads[1][8] == "-")
    await bench.stop()
  }

  @Test func `WNS is told whether to keep a push, and no other service is`() throws {
    let wns = try #require(WebPushOrigin(authority: Array("wns2-par02p.notify.windows.com".utf8)[...]))
    let fcm = try #require(WebPushOrigin(authority: Array("fcm.googleapis.com".utf8)[...]))
    let loop = EventLoop(name: "format-test")
    defer { loop.stop() }
    func policy(_ origin: WebPushOrigin, within time: Nanoseconds) throws -> String? {
      let endpoint = HTTP2Endpoint(host: origin.host, tls: try TestCertificates.shared.client())
      var head = HTTP2RequestHead()
      let request = PushRequest(
        tag: 0, deliveryID: DeliveryID(high: 1, low: 1), kind: .invite, environment: .production,
        token: Array("/w/?token=1".utf8), body: [], collapseID: nil, deadline: loop.now + time,
        expiresAtMilliseconds: 0)
      _ = WebPushFormat(endpoint, origin).write(request, authorization: [], loop: loop, into: &head)
      return head.decoded().fields["x-wns-cache-policy"]
    }
    #expect(try policy(wns, within: .milliseconds(100)) == "no-cache")
    #expect(try policy(wns, within: .seconds(30)) == "cache")
    #expect(try policy(fcm, within: .seconds(30)) == nil)
  }

  @Test func `each origin gets a token of its own, and uses it again`() async throws {
    let servers = try (0..<2).map { _ in
      try HTTP2TestServer {
        $0.connection.note($0.authorization)
        $0.respond(201)
      }
    }
    let bench = try ProviderBench.webPush(servers[0].port, servers[1].port, peers: servers.map(\.loop))
    await bench.start()
    for tag in 0..<10 {
      #expect(await bench.push(tag, to: WebPushFixture.token(servers[tag % 2].port, "\(tag)")).outcome.isAccepted)
    }
    for server in servers {
      let seen = await server.perform { Array($0.notes.keys) }
      try #require(seen.count == 1)
      #expect(seen[0].hasPrefix("vapid t="))
      #expect(seen[0].hasSuffix(", k=\(WebPushFixture.credentials.publicKey)"))
      let text = seen[0].dropFirst("vapid t=".count).prefix { $0 != "," }
      let jwt = try #require(JSONWebToken(compact: Array(text.utf8)))
      #expect(jwt.isSigned(by: try WebPushFixture.key.verifyingKey()))
      #expect(String(decoding: jwt.claims, as: UTF8.self).contains(#""aud":"https://127.0.0.1:\#(server.port)""#))
    }
    await bench.stop()
  }

  @Test func `another key is used from the next push on, over the same connection`() async throws {
    let server = try HTTP2TestServer {
      $0.connection.note($0.authorization.components(separatedBy: ", k=").last ?? "")
      $0.respond(201)
    }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    let next = try WebPushCredentials(key: .generate(for: .es256), subject: "https://example.com")
    await bench.provider.rotate(to: next)
    var tag = 1
    while await server.perform({ $0.notes[next.publicKey] }) == nil, tag < 1_000 {
      #expect(await bench.push(tag).outcome.isAccepted)
      tag += 1
    }
    #expect(await server.perform { $0.notes[next.publicKey] } == 1)
    #expect(await server.perform { $0.connectionCount } == 1)
    await bench.stop()
  }

  // MARK: - What is refused without a request

  @Test func `an endpoint that is not allowed is refused, and nobody gets a connection`() async throws {
    let allowed = try HTTP2TestServer { $0.respond(201) }
    let inner = try HTTP2TestServer { $0.respond(201) }
    let bench = try ProviderBench.webPush(allowed.port, peers: [allowed.loop])
    await bench.start()
    for (tag, endpoint) in [
      "https://127.0.0.1:\(inner.port)/push/a", "https://localhost:\(allowed.port)/push/a",
      "https://127.0.0.1/push/a", "https://127.1:\(allowed.port)/push/a",
    ].enumerated() {
      let result = await bench.push(tag, to: WebPushFixture.browser.token(endpoint: endpoint))
      #expect(result.outcome == .rejected(reason: "OriginNotAllowed"))
      #expect(result.sentAt == nil && result.status == 0)
    }
    #expect(await bench.push(10).outcome.isAccepted)
    #expect(await inner.perform { $0.connectionCount } == 0)
    #expect(await allowed.perform { $0.requestCount } == 1)
    await bench.stop()
  }

  @Test(
    arguments: [
      "", "a1b2c3d4", "https://127.0.0.1/push/a", #"{"endpoint":"https://127.0.0.1/a"}"#,
      "http://127.0.0.1/push/a#auth=BTBZMqHH6r4Tts7J_aSIgg&p256dh=" + String(repeating: "A", count: 87),
    ])
  func `a token that is no subscription is refused`(token: String) async throws {
    let bench = try ProviderBench.webPush(9)
    await bench.start()
    #expect(await bench.push(0, to: token).outcome == .rejected(reason: "MalformedSubscription"))
    await bench.stop()
  }

  @Test func `the largest content is sent, and a larger one is refused`() async throws {
    let server = try HTTP2TestServer {
      $0.connection.note("\($0.message.body.count)")
      $0.respond(201)
    }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    func request(_ tag: Int, bytes: Int) -> PushRequest {
      PushRequest(
        tag: UInt64(tag), deliveryID: DeliveryID(high: 1, low: 1), kind: .invite, environment: .production,
        token: Array(bench.token.utf8), body: [UInt8](repeating: 0x20, count: bytes), collapseID: nil,
        deadline: bench.provider.loop.now + .seconds(30), expiresAtMilliseconds: 0)
    }
    await bench.provider.send([request(0, bytes: 3_993), request(1, bytes: 3_994)])
    let results = await bench.reports.results(2)
    #expect(results[0]?.outcome.isAccepted == true)
    #expect(results[1]?.outcome == .rejected(reason: "PayloadTooLarge"))
    #expect(await server.perform { $0.notes } == ["4096": 1])
    await bench.stop()
  }

  @Test func `after its deadline nothing is sent, and while it waits for a connection it expires`() async throws {
    let server = try HTTP2TestServer { $0.respond(201) }
    await server.perform { $0.isMute = true }  // no SETTINGS, so no stream
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    await bench.provider.send([
      bench.request(0, within: .zero), bench.request(1, within: .milliseconds(-1)),
      bench.request(2, within: .milliseconds(150)),
    ])
    let results = await bench.reports.results(3)
    for tag in 0..<3 {
      #expect(results[UInt64(tag)]?.outcome == .expired)
      #expect(results[UInt64(tag)]?.sentAt == nil)
    }
    #expect(await server.perform { $0.requestCount } == 0)
    await bench.stop()
  }

  @Test func `a redirect is not followed`() async throws {
    let target = try HTTP2TestServer { $0.respond(201) }
    let location = "https://127.0.0.1:\(target.port)/push/a"
    let server = try HTTP2TestServer { $0.respond(307, [("location", location)]) }
    let bench = try ProviderBench.webPush(server.port, target.port, peers: [server.loop, target.loop])
    await bench.start()
    #expect(await bench.push(0).outcome == .rejected(reason: "HTTP307"))
    #expect(await target.perform { $0.connectionCount } == 0)
    await bench.stop()
  }

  // MARK: - Permit, withdrawal, shutdown

  @Test func `without a permit nothing is sent`() async throws {
    let server = try HTTP2TestServer { $0.respond(201) }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop], hasPermit: true)
    await bench.start()
    let result = await bench.push(0)
    #expect(result.outcome == .refused(reason: SendPermit.lapsedReason))
    #expect(await server.perform { $0.requestCount } == 0)
    let permit = try #require(bench.permit)
    await withCheckedContinuation { continuation in
      bench.provider.loop.execute {
        permit.until = .distantFuture
        continuation.resume()
      }
    }
    #expect(await bench.push(1).outcome.isAccepted)
    await bench.stop()
  }

  @Test func `a withdrawn push that waits is refused, and one that was sent keeps its answer`() async throws {
    var settings = HTTP2SessionSettings()
    settings.streamsMax = 1
    let server = try HTTP2TestServer(settings: settings) { $0.connection.hold($0) }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop]) { $0.pool.connectionsMax = 1 }
    await bench.start()
    await bench.provider.send(bench.requests(0..<2))
    try await eventually("it holds a push") { await server.perform { $0.held.count } == 1 }
    await bench.provider.withdraw([0, 1, 7])
    #expect(await bench.reports.results(1)[1]?.outcome == .refused(reason: "Withdrawn"))
    await server.perform { server in for held in server.held { held.respond(201) } }
    #expect(await bench.reports.results(2)[0]?.outcome.isAccepted == true)
    await bench.stop()
  }

  @Test func `a shutdown waits for answers, and what has none at its end is unknown`() async throws {
    let server = try HTTP2TestServer { exchange in
      guard exchange.message.headers.text(":path") != "/push/mute" else { return }
      let loop = exchange.connection.loop
      loop.schedule(at: loop.now + .milliseconds(200)) { exchange.respond(201) }
    }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    await bench.provider.send([
      bench.request(0), bench.request(1, token: WebPushFixture.token(server.port, "mute")),
    ])
    try await eventually("both have arrived") { await server.perform { $0.requestCount } == 2 }
    await bench.provider.shutDown(by: bench.provider.loop.now + .seconds(2))
    let results = bench.reports.results
    #expect(results.count == 2)
    #expect(results.first { $0.tag == 0 }?.outcome.isAccepted == true)
    #expect(results.first { $0.tag == 1 }?.outcome == .unknown(reason: "ConnectionLost"))
    #expect(bench.reports.capacities.last == 0)
    await bench.provider.send([bench.request(2)])
    #expect(await bench.reports.results(3)[2]?.outcome == .refused(reason: "ShuttingDown"))
    bench.provider.loop.stop()
  }

  // MARK: - A bad day stays local

  @Test func `an origin that fails does not affect another one`() async throws {
    let bad = try HTTP2TestServer { $0.respond(503) }
    let good = try HTTP2TestServer { $0.respond(201) }
    let bench = try ProviderBench.webPush(good.port, bad.port, peers: [good.loop, bad.loop])
    await bench.start()
    for tag in 0..<20 {
      let isGood = tag % 2 == 0
      let result = await bench.push(tag, to: WebPushFixture.token(isGood ? good.port : bad.port, "\(tag)"))
      #expect(result.outcome == (isGood ? .accepted(messageID: nil) : .unavailable(reason: "HTTP503", after: nil)))
      #expect(result.concernsLane)
    }
    #expect(bench.reports.capacities == [200])
    await bench.stop()
  }

  @Test func `an origin whose server cannot be reached does not delay the other, and is used again when it is back`()
    async throws
  {
    let good = try HTTP2TestServer { $0.respond(201) }
    let listener = try HTTP2TestServer { $0.respond(201) }
    let proxy = try ForgetfulProxy(to: listener)
    await proxy.sever()
    let bench = try ProviderBench.webPush(good.port, proxy.port) {
      $0.pool.waitTimeout = .milliseconds(300)
      $0.pool.connection.connectTimeout = .milliseconds(500)
    }
    await bench.start()
    let away = WebPushFixture.token(proxy.port)
    #expect(await bench.push(0, to: away).outcome == .refused(reason: "NoConnection"))
    for tag in 1..<20 { #expect(await bench.push(tag).outcome.isAccepted) }
    await proxy.sever(false)
    var tag = 20
    while await !bench.push(tag, to: away).outcome.isAccepted, tag < 1_000 {
      tag += 1
      await bench.pass(.milliseconds(20))
    }
    #expect(await listener.perform { $0.requestCount } == 1)
    #expect(bench.reports.capacities == [200])
    await bench.stop()
  }

  @Test func `a subscription of another key is refused like a wrong token, with the reason`()
    async throws
  {
    let server = try HTTP2TestServer { exchange in
      let isForeign = exchange.message.headers.text(":path")?.hasPrefix("/push/foreign") ?? false
      // FCM's words
      exchange.respond(
        isForeign ? 403 : 201,
        body: isForeign ? "the VAPID credentials in the authorization header do not correspond to the subscription" : ""
      )
    }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    for round in 0..<6 {
      let foreign = await bench.push(10 + round * 2, to: WebPushFixture.token(server.port, "foreign-\(round)"))
      #expect(foreign.outcome == .unauthorized(reason: "HTTP403"))
      #expect(await bench.push(11 + round * 2).outcome.isAccepted)
    }
    await bench.stop()
  }

  @Test func `another token is signed after a refusal, if the clock was set since`() async throws {
    let server = try HTTP2TestServer {
      $0.connection.note($0.authorization)
      $0.respond(401)
    }
    let clock = SetClock()
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop], clock: clock)
    await bench.start()
    for tag in 0..<3 { #expect(await bench.push(tag).outcome == .unauthorized(reason: "HTTP401")) }
    #expect(await server.perform { $0.notes.count } == 1)
    clock.set(back: .seconds(3600))
    _ = await bench.push(3)
    var tag = 4
    while await server.perform({ $0.notes.count }) == 1, tag < 1_000 {
      _ = await bench.push(tag)
      tag += 1
      await bench.pass(.milliseconds(20))
    }
    #expect(await server.perform { $0.notes.count } == 2)
    await bench.stop()
  }

  @Test func `Retry-After of a whole push service is the lane's`() async throws {
    let slow = try HTTP2TestServer { $0.respond(429, [("retry-after", "30")], body: #"{"errno":201}"#) }
    let bench = try ProviderBench.webPush(slow.port, peers: [slow.loop])
    await bench.start()
    #expect(
      await bench.push(0).outcome == .throttled(reason: "errno_201", after: .seconds(30), isLaneWide: true))
    await bench.stop()
  }

  @Test func `too many pushes to one subscription concern it alone`() async throws {
    let server = try HTTP2TestServer {
      $0.respond($0.message.headers.text(":path") == "/push/busy" ? 429 : 201, [("retry-after", "9")])
    }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop])
    await bench.start()
    #expect(
      await bench.push(0, to: WebPushFixture.token(server.port, "busy")).outcome
        == .throttled(reason: "HTTP429", after: .seconds(9), isLaneWide: false))
    #expect(await bench.push(1).outcome.isAccepted)
    await bench.stop()
  }

  // MARK: - Limits

  @Test func `there are at most originsMax origins, and an idle one makes room`() async throws {
    let servers = try (0..<3).map { _ in
      try HTTP2TestServer { exchange in
        if exchange.message.headers.text(":path") == "/push/held" { return exchange.connection.hold(exchange) }
        exchange.respond(201)
      }
    }
    let bench = try ProviderBench.webPush(
      servers[0].port, servers[1].port, servers[2].port, peers: servers.map(\.loop)
    ) { $0.originsMax = 2 }
    await bench.start()
    await bench.provider.send(
      (0..<2).map { bench.request($0, token: WebPushFixture.token(servers[$0].port, "held")) })
    for server in servers[..<2] {
      try await eventually("it holds a push") { await server.perform { $0.held.count } == 1 }
    }
    let third = WebPushFixture.token(servers[2].port)
    #expect(
      await bench.provider.outcome(of: bench.request(10, token: third), bench.reports)
        == .deferred(reason: "TooManyOrigins", after: .seconds(1)))
    await servers[0].perform { server in for held in server.held { held.respond(201) } }
    _ = await bench.reports.results(2)
    #expect(await bench.provider.outcome(of: bench.request(11, token: third), bench.reports)?.isAccepted == true)
    await servers[1].perform { server in for held in server.held { held.respond(201) } }
    _ = await bench.reports.results(4)
    await bench.stop()
  }

  @Test func `origins without a connection make room`() async throws {
    let server = try HTTP2TestServer { $0.respond(201) }
    // Nobody listens at these ports.
    let bench = try ProviderBench.webPush(server.port, 9, 11, peers: [server.loop]) {
      $0.originsMax = 2
      $0.pool.waitTimeout = .seconds(2)
    }
    await bench.start()
    await bench.provider.send([
      bench.request(0, token: WebPushFixture.token(9)), bench.request(1, token: WebPushFixture.token(11)),
    ])
    let other = bench.request(10, token: WebPushFixture.token(server.port))
    #expect(await bench.provider.outcome(of: other, bench.reports)?.isAccepted == true)
    _ = await bench.reports.results(3)
    await bench.stop()
  }

  @Test func `a push whose origin has made room waits a second`() async throws {
    // Nobody listens at these ports.
    let bench = try ProviderBench.webPush(9, 11) { $0.originsMax = 1 }
    await bench.start()
    await bench.provider.send([bench.request(0, token: WebPushFixture.token(9))])
    await bench.provider.send([bench.request(1, token: WebPushFixture.token(11))])
    let results = await bench.reports.results(1)
    #expect(results[0]?.outcome == .deferred(reason: "TooManyOrigins", after: .seconds(1)))
    #expect(results[0]?.sentAt == nil)
    await bench.stop()
    #expect(bench.reports.results.last?.outcome == .refused(reason: "ShuttingDown"))
  }

  @Test func `an idle origin is closed, and the next push opens it again`() async throws {
    let server = try HTTP2TestServer { $0.respond(201) }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop]) { $0.idleTimeMax = .milliseconds(200) }
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    #expect(await bench.provider.condition.openConnections == 1)
    try await eventually("it is closed") { await server.perform { $0.connections.isEmpty } }
    let first = await bench.push(1)
    #expect(first.outcome.isAccepted)
    #expect(await server.perform { $0.connectionCount } == 2)
    await bench.stop()
  }

  // MARK: - Secrets

  @Test func `no endpoint, key or content reaches the log`() async throws {
    let log = KeptLog()
    let server = try HTTP2TestServer { exchange in
      switch exchange.message.headers.text(":path") {
      case "/push/secret-401": exchange.respond(401)
      case "/push/secret-503": exchange.respond(503, body: "secret-503")
      case "/push/secret-reset": exchange.connection.session.reset(exchange.stream, .internalError)
      case "/push/secret-drop": exchange.connection.drop()
      default: exchange.respond(201)
      }
    }
    let stranger = try HTTP2TestServer { $0.respond(201) }
    let bench = try ProviderBench.webPush(server.port, peers: [server.loop], logger: log.logger)
    await bench.start()
    var tag = 0
    for name in ["secret-ok", "secret-reset", "secret-drop", "secret-503", "secret-401"] {
      for _ in 0..<6 {
        _ = await bench.push(tag, to: WebPushFixture.token(server.port, name))
        tag += 1
      }
      while await !bench.push(tag).outcome.isAccepted, tag < 10_000 {
        tag += 1
        await bench.pass(.milliseconds(20))
      }
      tag += 1
    }
    _ = await bench.push(tag, to: WebPushFixture.token(stranger.port, "secret-stranger"))
    await bench.stop()
    let text = log.text
    #expect(text.contains("127.0.0.1"))
    let browser = WebPushFixture.browser
    for secret in [
      "secret", "/push/", "callId", "vapid", "eyJ", String(decoding: Base64URL.encode(browser.auth), as: UTF8.self),
      String(decoding: Base64URL.encode(browser.key.point), as: UTF8.self), WebPushFixture.credentials.publicKey,
    ] {
      #expect(!text.contains(secret), "\(secret)")
    }
    for result in bench.reports.results { #expect(!"\(result.outcome)".contains("secret")) }
  }
}

extension WebPushProvider {
  /// Sends a push while others are in flight, and returns its outcome.
  fileprivate func outcome(of request: PushRequest, _ reports: ProviderReports) async -> PushOutcome? {
    send([request])
    try? await eventually("an outcome") { reports.results.contains { $0.tag == request.tag } }
    return reports.results.first { $0.tag == request.tag }?.outcome
  }
}

extension HTTP2HeaderBlock {
  /// The fields by name.
  fileprivate var fields: [String: String] {
    var fields: [String: String] = [:]
    forEach { fields[String(decoding: $0, as: UTF8.self)] = String(decoding: $1, as: UTF8.self) }
    return fields
  }
}

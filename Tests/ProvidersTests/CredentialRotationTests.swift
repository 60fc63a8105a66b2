// Tests of rotated keys while pushes are under way, over real TLS.

import HTTP2TestSupport
import PushModel
import Runtime
import Simulators
import Synchronization
import TestTime
import Testing

@testable import Providers

@Suite("Credential rotation", .timeLimit(.minutes(10))) struct CredentialRotationTests {
  @Test
  func `an APNs key is rotated under load without a failed push, and the old key is not used afterwards`() async throws
  {
    let newKey = try SigningKey.generate(for: .es256)
    var configuration = SimulatorSuite.Configuration()
    configuration.apnsKeys = ["NEWKEY4321": try newKey.verifyingKey()]
    let suite = try await SimulatorSuite.start(configuration)
    let identity = suite.material.identity
    let bench = try ProviderBench.apns(suite, tokens: suite.material.apnsTokens())
    await bench.start()

    var sent = 0
    func load(_ count: Int) async {
      await bench.provider.send(bench.requests(sent..<sent + count))
      sent += count
      _ = await bench.reports.results(sent - count / 2)  // always some in flight
    }
    for _ in 0..<10 { await load(200) }
    let capacityBefore = bench.reports.capacities.count
    await bench.provider.rotate(
      to: APNsTokenSource(APNsCredentials(teamID: identity.teamID, keyID: "NEWKEY4321", key: newKey)))
    var isNewKeyInUse = false
    for _ in 0..<200 where !isNewKeyInUse {
      await load(200)
      isNewKeyInUse = await suite.apnsProduction.accepted.last?.detail("kid") == "NEWKEY4321"
    }
    #expect(isNewKeyInUse)
    _ = await bench.reports.results(sent)
    let firstAfterwards = sent
    for _ in 0..<10 { await load(200) }

    let results = await bench.reports.results(sent)
    #expect(results.count == sent)
    #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    let accepted = await suite.apnsProduction.accepted
    #expect(accepted.count == sent, "no push was sent twice")
    #expect(Set(accepted.map { $0.detail("kid") }) == [identity.keyID, "NEWKEY4321"])
    #expect(accepted[firstAfterwards...].allSatisfy { $0.detail("kid") == "NEWKEY4321" })
    let counters = await suite.apnsProduction.counters
    #expect(counters.refused == ["BadDeviceToken": 1], "the trial of the new key")
    #expect(bench.reports.capacities[capacityBefore...].allSatisfy { $0 >= 1000 })
    await bench.stop()
    await suite.stop()
  }

  @Test
  func `requests that wait for a stream move to the new connections, and those in flight end on the old one`()
    async throws
  {
    var settings = HTTP2SessionSettings()
    settings.streamsMax = 1
    let server = try HTTP2TestServer(settings: settings) { exchange in
      exchange.connection.note(exchange.authorization)
      if exchange.connection.number == 0 { exchange.connection.hold(exchange) } else { exchange.accept() }
    }
    let bench = try ProviderBench.apns(server, tokens: NumberedTokens("old")) { $0.connectionsMax = 1 }
    await bench.start()
    await bench.provider.send(bench.requests(0..<10))
    await bench.provider.rotate(to: NumberedTokens("new"))
    let moved = await bench.reports.results(9)
    #expect(moved[0] == nil)
    #expect(moved.values.allSatisfy { $0.outcome.isAccepted && $0.connection == 1 })
    await server.perform { server in for exchange in server.held { exchange.accept() } }
    let all = await bench.reports.results(10)
    #expect(all[0]?.outcome.isAccepted == true)
    #expect(all[0]?.connection == 0)
    #expect(await server.perform { $0.notes } == ["bearer old1": 1, "bearer new1": 10], "nine, and the trial")
    await bench.stop()
  }

  @Test
  func `a push refused with the old key is sent again with the new one`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.authorization)
      if exchange.connection.number == 0 { exchange.connection.hold(exchange) } else { exchange.accept() }
    }
    let bench = try ProviderBench.apns(server, tokens: NumberedTokens("old"))
    await bench.start()
    await bench.provider.send(bench.requests(0..<2))
    await bench.provider.rotate(to: NumberedTokens("new"))
    _ = await bench.reports.results(1)  // the request that moved
    await server.perform { server in
      for exchange in server.held { exchange.respond(403, body: #"{"reason":"InvalidProviderToken"}"#) }
    }
    let results = await bench.reports.results(2)
    #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    await bench.stop()
  }

  @Test
  func `a foreign key does not displace the one that works, and the right one does`() async throws {
    let newKey = try SigningKey.generate(for: .es256)
    var configuration = SimulatorSuite.Configuration()
    configuration.apnsKeys = ["NEWKEY4321": try newKey.verifyingKey()]
    let suite = try await SimulatorSuite.start(configuration)
    let identity = suite.material.identity
    let log = KeptLog()
    let bench = try ProviderBench.apns(suite, tokens: suite.material.apnsTokens(), logger: log.logger)
    await bench.start()
    let stranger = APNsCredentials(
      teamID: identity.teamID, keyID: identity.keyID, key: try SigningKey.generate(for: .es256))
    await bench.provider.rotate(to: APNsTokenSource(stranger))
    var sent = 0
    // Calls before, during and after the trials of the foreign key.
    while await suite.apnsProduction.counters.refused["InvalidProviderToken", default: 0] < 2 {
      #expect(await bench.push(sent).outcome.isAccepted)
      sent += 1
    }
    try await eventually("it is said") { await bench.provider.condition.refusedCredentials == "InvalidProviderToken" }
    for _ in 0..<10 {
      #expect(await bench.push(sent).outcome.isAccepted)
      sent += 1
    }
    #expect(log.text.split(separator: "\n").count { $0.contains("new credentials are refused") } == 1)
    #expect(bench.reports.renewals == 0)

    await bench.provider.rotate(
      to: APNsTokenSource(APNsCredentials(teamID: identity.teamID, keyID: "NEWKEY4321", key: newKey)))
    try await eventually("the right key is in use") { bench.reports.renewals == 1 }
    #expect(await bench.push(sent).outcome.isAccepted)
    let accepted = await suite.apnsProduction.accepted
    #expect(accepted.count == sent + 1)
    #expect(accepted.last?.detail("kid") == "NEWKEY4321")
    #expect(await bench.provider.condition.refusedCredentials == nil)
    await bench.stop()
    await suite.stop()
  }

  @Test
  func `an account that may not send to the project does not displace the one that may`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.authorization)
      if exchange.authorization == "Bearer new1" {
        exchange.respond(403, body: #"{"error":{"code":403,"status":"PERMISSION_DENIED","message":"m"}}"#)
      } else {
        exchange.accept()
      }
    }
    let bench = try ProviderBench.fcm(server, tokens: NumberedTokens("old"))
    await bench.start()
    await bench.provider.rotate(to: NumberedTokens("new"))
    try await eventually("it is refused") { await bench.provider.condition.refusedCredentials == "PERMISSION_DENIED" }
    for tag in 0..<20 { #expect(await bench.push(tag).outcome.isAccepted) }
    await bench.stop()
  }

  @Test(arguments: [503, 429, 0])
  func `while the provider is ill nothing is known of new credentials, and they are tried again`(
    status: Int
  ) async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.authorization)
      if exchange.authorization == "bearer new1", exchange.connection.noted("bearer new1") < 3 {
        if status == 0 {
          exchange.connection.drop()
        } else {
          exchange.respond(status, body: #"{"reason":"\#(status == 503 ? "ServiceUnavailable" : "x")"}"#)
        }
      } else {
        exchange.accept()
      }
    }
    let bench = try ProviderBench.apns(server, tokens: NumberedTokens("old"))
    await bench.start()
    #expect(await bench.push(0).outcome.isAccepted)
    await bench.provider.rotate(to: NumberedTokens("new"))
    try await eventually("the new key is in use") { bench.reports.renewals == 1 }
    #expect(await bench.push(1).outcome.isAccepted)
    #expect(await server.perform { $0.notes["bearer old1"] } == 1)
    await bench.stop()
  }

  @Test
  func `a key that was never accepted is displaced by any`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.authorization)
      if exchange.authorization == "bearer right1" {
        exchange.accept()
      } else {
        exchange.respond(403, body: #"{"reason":"InvalidProviderToken"}"#)
      }
    }
    let bench = try ProviderBench.apns(server, tokens: NumberedTokens("wrong"))
    await bench.start()
    await bench.provider.rotate(to: NumberedTokens("other"))
    try await eventually("the other wrong key is in use") { bench.reports.renewals == 1 }
    #expect(await bench.push(0).outcome == .unauthorized(reason: "InvalidProviderToken"))
    await bench.provider.rotate(to: NumberedTokens("right"))
    try await eventually("the right key is in use") { bench.reports.renewals == 2 }
    #expect(await bench.push(1).outcome.isAccepted)
    await bench.stop()
  }

  @Test(arguments: [1, 3])
  func `credentials without a token change nothing, and the next rotation works`(failures: Int) async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.authorization)
      exchange.accept()
    }
    let bench = try ProviderBench.apns(server, tokens: NumberedTokens("old"))
    await bench.start()
    for tag in 0..<failures {
      await bench.provider.rotate(
        to: TokensFromClosure { _ throws(ProviderTokenError) in throw ProviderTokenError("no key") })
      #expect(await bench.push(tag).outcome.isAccepted)
    }
    #expect(await server.perform { $0.notes } == ["bearer old1": failures + 1], "it was tried, too")
    await bench.provider.rotate(to: NumberedTokens("new"))
    try await eventually("the new key is in use") { bench.reports.renewals == 1 }
    #expect(await bench.push(failures).outcome.isAccepted)
    #expect(await server.perform { $0.notes["bearer new1"] } == 2)
    await bench.stop()
  }

  @Test
  func `an FCM service account is rotated under load, without a failed push`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.authorization)
      exchange.accept()
    }
    let bench = try ProviderBench.fcm(server, tokens: NumberedTokens("old")) { $0.connectionsMax = 1 }
    await bench.start()
    var sent = 0
    func load() async {
      await bench.provider.send(bench.requests(sent..<sent + 200))
      sent += 200
      _ = await bench.reports.results(sent - 100)
    }
    for _ in 0..<10 { await load() }
    await bench.provider.rotate(to: NumberedTokens("new"))
    while await server.perform({ $0.notes["Bearer new1"] }) == nil, sent < 100_000 { await load() }
    _ = await bench.reports.results(sent)
    let oldOnes = await server.perform { $0.notes["Bearer old1"] }
    for _ in 0..<10 { await load() }
    let results = await bench.reports.results(sent)
    #expect(results.values.allSatisfy { $0.outcome.isAccepted })
    #expect(await server.perform { $0.requestCount } == sent + 1, "and the trial of the new account")
    #expect(await server.perform { $0.notes["Bearer old1"] } == oldOnes)
    #expect(await server.perform { $0.connectionCount } == 2)
    #expect(bench.reports.capacities == [100])
    await bench.stop()
  }

  @Test
  func `a new key is used as soon as it is accepted, even if one of its connections fails`() async throws {
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.authorization)
      exchange.accept()
    }
    let nobody = HTTP2Endpoint(
      host: "127.0.0.1", port: try ServerProcess.freePort(), tls: try TestCertificates.shared.client())
    let bench = try ProviderBench.apns(server, tokens: NumberedTokens("old")) {
      $0.waitTimeout = .milliseconds(10)
    } configuration: {
      $0.sandbox = nobody
    }
    await bench.start()
    await bench.provider.send([bench.request(0, environment: .sandbox)])
    #expect(await bench.reports.results(1)[0]?.outcome == .refused(reason: "NoConnection"))
    #expect(await bench.push(1).outcome.isAccepted)
    await bench.provider.rotate(to: NumberedTokens("new"))
    try await eventually("the new key is in use") { bench.reports.renewals == 1 }
    #expect(await bench.push(2).outcome.isAccepted)
    #expect(await server.perform { $0.notes["bearer old1"] } == 1)
    await bench.stop()
  }

  @Test
  func `an access token that is revoked as soon as it is granted is replaced at once for all apps of the account`()
    async throws
  {
    let grants = try CurlTestServer.shared.get()
    let revoked = Mutex("")
    let server = try HTTP2TestServer { exchange in
      exchange.connection.note(exchange.authorization)
      // The first one.
      let isRevoked = revoked.withLock { revoked in
        if revoked.isEmpty { revoked = exchange.authorization }
        return exchange.authorization == revoked
      }
      if isRevoked {
        exchange.respond(401, body: #"{"error":{"code":401,"status":"UNAUTHENTICATED","message":"m"}}"#)
      } else {
        exchange.accept()
      }
    }
    let source = FCMTokenSource(
      account: FCMTestAccount.account(tokenURI: "https://localhost:\(grants.port)/token?revoked"),
      caFile: grants.caFile, loop: .paced("token-test"))
    let shared = SharedTokenSource(
      identity: "account", ageMin: .zero, store: SharedTokenSourceTests.Store()
    ) { refused throws(ProviderTokenError) in try await source.token(replacing: refused) }
    let benches = try (0..<2).map { _ in try ProviderBench.fcm(server, tokens: shared) }
    for bench in benches { await bench.start() }
    for bench in benches {
      let outcome = await bench.push(0).outcome
      #expect(outcome.isAccepted, "\(outcome)")
    }
    let uses = await server.perform { $0.notes }
    #expect(uses[revoked.withLock { $0 }] == 2 && uses.values.reduce(0, +) == 4)
    for bench in benches { await bench.stop() }
    source.loop.stop()
  }

  @Test
  func `a shutdown during a rotation ends every request`() async throws {
    let server = try HTTP2TestServer { $0.connection.hold($0) }
    let bench = try ProviderBench.apns(server, tokens: NumberedTokens("old"))
    await bench.start()
    await bench.provider.send(bench.requests(0..<3))
    await bench.provider.rotate(to: NumberedTokens("new"))
    await bench.provider.shutDown(by: bench.provider.loop.now + .milliseconds(100))
    let results = await bench.reports.results(3)
    #expect(results.values.allSatisfy { !$0.outcome.isAccepted })
    bench.provider.loop.stop()
  }
}

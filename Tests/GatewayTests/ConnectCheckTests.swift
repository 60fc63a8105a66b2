// check-config --connect: what it says of good and of wrong credentials, of databases, and of what cannot be reached.

import Foundation
import HTTP2TestSupport
import Queue
import Runtime
import Simulators
import TestSupport
import Testing

@testable import Gateway
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct ConnectCheckTests {
  /// Simulators, a database, and the configuration for both.
  private struct Place {
    let simulators: SimulatorSuite
    let database: TestDatabase

    var material: SimulatorMaterial { simulators.material }
    var configuration: GatewayConfiguration {
      get throws { try GatewayConfiguration.load(file: material.configurationFile, environment: [:]) }
    }

    /// One line for each check.
    func lines(
      limit: Nanoseconds = .seconds(120), _ change: (inout GatewayConfiguration) -> Void = { _ in }
    ) async throws -> [String] {
      var configuration = try configuration
      change(&configuration)
      return await ConnectChecks(configuration: configuration, limit: limit).run()
        .map { "\($0.finding) \($0.subject): \($0.text)" }
    }

    /// No check says anything of these.
    var secrets: [String] {
      get throws {
        let files = [material.apnsKeyFile, material.serviceAccountFile, material.expoAccessTokenFile]
        return try files.flatMap { try String(contentsOfFile: $0, encoding: .utf8).split(separator: "\n") }
          .map { $0.trimmingCharacters(in: .whitespaces) }.filter { $0.count > 24 }
      }
    }
  }

  private func with(
    isMigrated: Bool = true, adjust: (inout SimulatorSuite.Configuration) -> Void = { _ in },
    _ body: (Place) async throws -> Void
  ) async throws {
    try await TestDatabase.with(isMigrated ? .migrated : .empty) { database in
      var configuration = SimulatorSuite.Configuration()
      configuration.database = database.url
      configuration.requiresExpoAccessToken = true
      adjust(&configuration)
      let simulators = try await SimulatorSuite.start(configuration)
      do {
        try await body(Place(simulators: simulators, database: database))
      } catch {
        await simulators.stop()
        throw error
      }
      await simulators.stop()
      try? FileManager.default.removeItem(atPath: simulators.material.directory)
    }
  }

  // MARK: - Providers

  @Test func `good credentials are accepted by every provider, and no phone gets a push`() async throws {
    try await with { place in
      let lines = try await place.lines()
      #expect(
        lines.map { $0.prefix { $0 != ":" } } == [
          "good database", "good apps.porteiro.apns.production_url", "good apps.porteiro.apns.sandbox_url",
          "good apps.porteiro.fcm", "good apps.porteiro.expo",
        ], "\(lines)")
      #expect(lines[0].contains(": UTF8, the schema is up to date, and "), "\(lines)")
      let identity = place.material.identity
      #expect(lines[1].hasSuffix(" accepts key_id \(identity.keyID), team_id and topic \(identity.topic)"), "\(lines)")
      for (name, server) in place.simulators.all where name.hasPrefix("apns") || name == "fcm" {
        #expect(await server.accepted.isEmpty)
        #expect(await server.counters.refused.values.reduce(0, +) == 1)
      }
    }
  }

  @Test func `a key that Apple does not know is named with what to check, and other providers are good`() async throws {
    try await with { place in
      try SecretFixture.write(try SigningKey.generate(for: .es256).privateKeyPEM(), to: place.material.apnsKeyFile)
      let lines = try await place.lines()
      let identity = place.material.identity
      let sentence =
        "Apple refuses the key of porteiro (403 InvalidProviderToken): check team_id \(identity.teamID), "
        + "key_id \(identity.keyID), key_file apns-key.p8"
      #expect(
        lines.filter { !$0.hasPrefix("good") } == [
          "refused apps.porteiro.apns.production_url: \(sentence)",
          "refused apps.porteiro.apns.sandbox_url: \(sentence)",
        ], "\(lines)")
      #expect(lines.count == 5)
    }
  }

  @Test func `another team and another topic are refused`() async throws {
    try await with { place in
      let ofTeam = try await place.lines { $0.apps[0].apns?.teamID = "OTHERTEAM1" }
      #expect(ofTeam[1].contains("(403 InvalidProviderToken): check team_id OTHERTEAM1, "), "\(ofTeam)")
      let ofTopic = try await place.lines { $0.apps[0].apns?.topic = "com.example.other" }
      #expect(ofTopic[1].hasPrefix("refused "), "\(ofTopic)")
      #expect(ofTopic[1].contains("(400 TopicDisallowed): check topic com.example.other, "), "\(ofTopic)")
    }
  }

  @Test func `a key for one environment is a warning for the other`() async throws {
    try await with(adjust: { $0.apnsKeyEnvironment = .production }) { place in
      let lines = try await place.lines()
      #expect(lines[1].hasPrefix("good "), "\(lines)")
      #expect(
        lines[2].hasPrefix("limited apps.porteiro.apns.sandbox_url: Apple refuses the key of porteiro "), "\(lines)")
      #expect(lines[2].contains("(403 BadEnvironmentKeyIdInToken)") && lines[2].contains("one environment only"))
    }
  }

  @Test func `a service account whose key was deleted is refused at once, by its token endpoint`() async throws {
    try await with { place in
      await place.simulators.setFaults(FaultPlan([FaultRule(provider: .oauth, fault: .reason("invalid_grant"))]))
      // A check that waited for the end of its limit would outlast the test.
      let lines = try await place.lines(limit: .seconds(3_600))
      let name = place.material.serviceAccountFile.split(separator: "/").last ?? ""
      #expect(
        lines[3] == "refused apps.porteiro.fcm: Google refuses the service account of porteiro (invalid_grant): check "
          + "service_account_file \(name), whether its key still exists, and this machine's clock", "\(lines)")
    }
  }

  @Test func `a project that Google does not know, and an access token that Expo does not, are refused`() async throws {
    try await with { place in
      let account = try String(contentsOfFile: place.material.serviceAccountFile, encoding: .utf8)
      try SecretFixture.write(
        account.replacing(place.material.identity.project, with: "no-such-project"),
        to: place.material.serviceAccountFile)
      try SecretFixture.write("another-access-token-of-nobody", to: place.material.expoAccessTokenFile)
      let lines = try await place.lines()
      #expect(
        lines[3].hasPrefix("refused apps.porteiro.fcm: Google refuses the service account of porteiro "), "\(lines)")
      let name = place.material.expoAccessTokenFile.split(separator: "/").last ?? ""
      #expect(
        lines[4].hasPrefix("refused apps.porteiro.expo: Expo refuses the access token of porteiro (")
          && lines[4].hasSuffix("): check access_token_file \(name)"), "\(lines)")
      let without = try await place.lines { $0.apps[0].expo?.accessTokenFile = nil }
      #expect(without[4].hasSuffix("): set access_token_file"), "\(without)")
      for secret in try place.secrets { #expect(!(lines + without).contains { $0.contains(secret) }) }
    }
  }

  @Test func `a provider that cannot be reached or is ill is unknown, not refused`() async throws {
    try await with { place in
      await place.simulators.setFaults(
        FaultPlan([FaultRule(provider: .oauth, fault: Fault(.answer(status: 503, reason: "unavailable", body: nil)))]))
      // It waits for all of this time: long enough for an answer on a busy machine.
      let lines = try await place.lines(limit: .seconds(20)) {
        // Nothing listens there.
        $0.apps[0].apns?.sandboxURL = GatewayConfiguration.ProviderURL(host: "127.0.0.1", port: 1)
        $0.apps[0].expo?.url = GatewayConfiguration.ProviderURL(host: "127.0.0.1", port: 1)
      }
      for line in lines[2...] { #expect(line.hasPrefix("unreachable "), "\(lines)") }
      #expect(lines[2].contains("https://127.0.0.1:1 cannot be reached: "), "\(lines)")
      #expect(lines[3].contains("the token endpoint answered 503"), "\(lines)")
    }
  }

  @Test func `many apps are asked, and their results are in the order of the configuration`() async throws {
    try await with { place in
      let lines = try await place.lines { configuration in
        let app = configuration.apps[0]
        configuration.apps = (1...20).map { number in
          var copy = app
          copy.name = "app-\(number)"
          (copy.expo, copy.webPush) = (nil, nil)
          if number == 7 { copy.apns?.keyID = "UNKNOWN777" }
          return copy
        }
      }
      #expect(lines.count == 1 + 20 * 3)
      #expect(
        lines.dropFirst().map { String($0.split(separator: ".")[1]) }
          == (1...20).flatMap { Array(repeating: "app-\($0)", count: 3) })
      #expect(
        lines.filter { !$0.hasPrefix("good") }.map { $0.prefix { $0 != ":" } } == [
          "refused apps.app-7.apns.production_url", "refused apps.app-7.apns.sandbox_url",
        ], "\(lines)")
    }
  }

  // MARK: - Databases

  @Test func `a database without the schema is refused with the command that makes it`() async throws {
    try await with(isMigrated: false) { place in
      let lines = try await place.lines { $0.apps = [] }
      #expect(lines.count == 1)
      #expect(lines[0].hasPrefix("refused database: the database lacks "), "\(lines)")
      #expect(lines[0].hasSuffix("run `push-gateway migrate` first"), "\(lines)")
    }
  }

  @Test func `a role without the rights of a gateway is refused, with the grant that it lacks`() async throws {
    try await with { place in
      let role = "check_\(UUID().uuidString.prefix(8).lowercased())"
      try await place.database.execute("create role \(role) login password 'check-password'")
      func lines(_ role: String, _ password: String = "check-password") async throws -> [String] {
        var url = try #require(URLComponents(string: place.database.url))
        (url.user, url.password) = (role, password)
        let text = try #require(url.string)
        return try await place.lines {
          $0.apps = []
          $0.databases[0].url = text
        }
      }
      do {
        let stranger = try await lines(role)
        #expect(stranger[0].hasPrefix("refused database: \(role) may not read the schema push ("), "\(stranger)")
        #expect(stranger[0].hasSuffix("grant push_gateway to \(role)"), "\(stranger)")
        try await place.database.execute(
          "grant usage on schema push to \(role); grant select on push.schema_migration, push.schema_functions, push.missing_rights to \(role)"
        )
        let reader = try await lines(role)
        #expect(
          reader[0].contains("\(role) may not execute push.")
            && reader[0].contains(" more: grant push_gateway to \(role)"), "\(reader)")
        try await place.database.execute(
          "grant push_gateway to \(role); revoke execute on function push.settle from push_gateway")
        let member = try await lines(role)
        #expect(member[0].contains("\(role) may not execute push.settle: "), "\(member)")
        try await place.database.execute("select push.grant_roles()")
        #expect(try await lines(role)[0].hasPrefix("good database: Postgres "))
        let nobody = try await lines(role + "_nobody")
        #expect(
          nobody[0].hasPrefix("refused database: ") && nobody[0].contains("check the role, its password"), "\(nobody)")
        #expect(!nobody[0].contains("check-password"))
      } catch {
        try? await place.database.execute("drop owned by \(role); drop role \(role)")
        throw error
      }
      try await place.database.execute("drop owned by \(role); drop role \(role)")
    }
  }

  @Test func `a database with another encoding is refused`() async throws {
    try await TestDatabase.with(.empty) { database in
      let name = "latin_\(UUID().uuidString.prefix(8).lowercased())"
      try await database.execute("create database \(name) encoding 'LATIN1' locale 'C' template template0")
      var url = try #require(URLComponents(string: database.url))
      url.path = "/\(name)"
      let check = DatabaseCheck(
        database: GatewayConfiguration.Database(url: try #require(url.string)), limit: .seconds(120),
        loop: database.loop)
      let found = await check.run()
      try await database.execute("drop database \(name) with (force)")
      #expect(found.finding == .refused)
      #expect(found.text.hasPrefix("its encoding is LATIN1, "), "\(found)")
    }
  }

  @Test func `a pooler in transaction mode is recognized, also before a database that is good`() async throws {
    try await with { place in
      let pooler = try PgBouncer(before: place.database.url)
      let check = DatabaseCheck(
        database: GatewayConfiguration.Database(url: pooler.url), limit: .seconds(120), loop: place.database.loop)
      let found = await check.run()
      #expect(found.finding == .refused, "\(found)")
      #expect(found.text.hasPrefix("a pooler in transaction mode answers, "), "\(found)")
    }
  }

  @Test func `a server that refuses connections is unknown`() async throws {
    let loop = EventLoop(name: "check")
    defer { loop.stop() }
    let check = DatabaseCheck(
      database: GatewayConfiguration.Database(url: "postgres://push:secret-password@127.0.0.1:1/push"),
      limit: .seconds(120), loop: loop)
    let found = await check.run()
    #expect(found.finding == .unreachable && found.subject == "database", "\(found)")
    #expect(!found.text.contains("secret-password"))
  }

  // MARK: - The command

  @Test func `the command exits with 0, with 78 if anything is refused, and with 69 if only answers are missing`()
    async throws
  {
    try await with { place in
      func run(_ environment: [String: String] = [:]) async throws -> CommandRun {
        try await OperationsFixture.run(
          place.database.url, ["check-config", "--config", place.material.configurationFile, "--connect"],
          environment: environment)
      }
      let good = try await run()
      #expect(good.status == 0, "\(good)")
      #expect(good.output.contains("\nok      apps.porteiro.fcm: https://"), "\(good)")
      #expect(good.output.hasSuffix("\nthe configuration is good\n"), "\(good)")
      #expect(good.errors.isEmpty, "standard error is no terminal, so there is no progress")

      let unknown = try await run(["PUSH_GATEWAY_APPS_PORTEIRO_EXPO_URL": "https://127.0.0.1:1"])
      #expect(unknown.status == 69, "\(unknown)")
      #expect(unknown.output.contains("\nUNKNOWN apps.porteiro.expo: "), "\(unknown)")
      #expect(unknown.errors == "Error: 1 of the checks got no answer\n", "\(unknown)")

      let refused = try await run([
        "PUSH_GATEWAY_APPS_PORTEIRO_EXPO_URL": "https://127.0.0.1:1",
        "PUSH_GATEWAY_APPS_PORTEIRO_APNS_KEY_ID": "OTHERKEY77",
      ])
      #expect(refused.status == 78, "\(refused)")
      #expect(
        refused.output.contains("\nFAILED  apps.porteiro.apns.production_url: Apple refuses the key of "), "\(refused)")
      #expect(refused.errors == "Error: 2 of the checks failed\n", "\(refused)")
      for secret in try place.secrets {
        #expect(![good, unknown, refused].contains { ($0.output + $0.errors).contains(secret) })
      }
    }
  }

  // MARK: - The form of ids

  @Test func `ids of another form than Apple's, and a key_id that the file's name contradicts, are warnings`()
    async throws
  {
    try await with { place in
      var configuration = try place.configuration
      #expect(AppleIDRemarks.all(of: configuration) == [])
      configuration.apps[0].apns?.teamID = "team123456"
      configuration.apps[0].apns?.keyID = "ABC123DEF"
      let remarks = AppleIDRemarks.all(of: configuration)
      #expect(remarks.map { $0.prefix { $0 != ":" } } == ["apps.porteiro.apns.team_id", "apps.porteiro.apns.key_id"])
      #expect(remarks[0].contains("team123456 is not ten capitals and digits"), "\(remarks)")
      configuration.apps[0].apns?.teamID = "TEAM123456"
      configuration.apps[0].apns?.keyID = "ABC123DEFG"
      configuration.apps[0].apns?.keyFile = "/etc/keys/AuthKey_ABC123DEFG.p8"
      #expect(AppleIDRemarks.all(of: configuration) == [])
      configuration.apps[0].apns?.keyID = "XYZ123DEFG"
      #expect(
        AppleIDRemarks.all(of: configuration) == [
          "apps.porteiro.apns.key_id: is XYZ123DEFG, but the name of /etc/keys/AuthKey_ABC123DEFG.p8 says ABC123DEFG: "
            + "one of them is of another key"
        ])
      configuration.apps[0].apns?.keyFile = "/run/credentials/apns-key"
      #expect(AppleIDRemarks.all(of: configuration) == [])
    }
  }
}

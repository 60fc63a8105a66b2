// Several databases in one configuration.

import SettingsTestSupport
import Testing

@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct DatabasesConfigurationTests {
  private let folder = try! ConfigurationFolder()
  private static let apps = "apps: { a: { expo: } }\n"
  private static let two = "databases:\n  south: { url: postgres://s/x }\n  north: { url: postgres://n/x }\n"

  @Test func `databases have names, and come in their order`() throws {
    let configuration = try folder.load(Self.two + Self.apps)
    #expect(
      configuration.databases == [
        .init(name: "north", url: "postgres://n/x"), .init(name: "south", url: "postgres://s/x"),
      ])
  }

  @Test func `the API serves the first database, or the one that is named`() throws {
    #expect(try folder.load(Self.two + Self.apps + "api: { enabled: true }").api?.database.name == "north")
    #expect(
      try folder.load(Self.two + Self.apps + "api: { enabled: true, database: south }").api?.database.name == "south")
    #expect(try folder.message(Self.two + Self.apps + "api: { database: west }").contains("unknown value west"))
  }

  @Test func `a variable sets the URL of one database`() throws {
    let configuration = try folder.load(
      Self.two + Self.apps, ["PUSH_GATEWAY_DATABASES_SOUTH_URL": "postgres://elsewhere/x"])
    #expect(configuration.databases.map(\.url) == ["postgres://n/x", "postgres://elsewhere/x"])
  }

  @Test(arguments: [
    ("database: postgres://one/x\n" + two, "database: cannot be combined with databases"),
    ("databases: { north: { } }\n", "databases.north.url: is missing"),
    ("databases: { north: { url: mysql://n/x } }\n", "must be a URL that begins with postgres://"),
    ("databases: { north: postgres://n/x }\n", "must be a section with keys below it: url"),
    ("databases: { -north: { url: postgres://n/x } }\n", "the name of a database must begin with a letter or digit"),
  ])
  func `mistakes are named with their remedy`(text: String, fault: String) throws {
    let message = try folder.message(text + Self.apps)
    #expect(message.contains(fault), "\(message)")
  }

  @Test func `DATABASE_URL cannot be combined with several databases`() throws {
    let message = try folder.message(Self.two + Self.apps, ["DATABASE_URL": "postgres://u:secret@one/x"])
    #expect(message.contains("unset DATABASE_URL, or remove databases"))
    #expect(!message.contains("secret"))
  }

  @Test func `commands that need one database find all of them, or the one of DATABASE_URL`() throws {
    try folder.write(Self.two, to: "gateway.yaml")
    let file = folder.path + "/gateway.yaml"
    #expect(try GatewayConfiguration.loadDatabases(file: file, environment: [:]).map(\.name) == ["north", "south"])
    #expect(
      try GatewayConfiguration.loadDatabases(file: file, environment: ["DATABASE_URL": "postgres://one/x"])
        == [.init(url: "postgres://one/x")])
  }
}

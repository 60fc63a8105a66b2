// Adding an app to the text of a configuration.

import Testing

@testable import Settings

struct ConfigurationStanzaTests {
  private let stanza = ConfigurationStanza(
    app: "zelador", settings: [("ring_seconds", "20")],
    sections: [("fcm", [("service_account_file", "fcm.json")]), ("expo", [])])

  @Test func `the app comes last below apps, with their indentation, and all other lines stay`() throws {
    let text = """
      # Our gateway.
      database: postgres://db/x

      apps: # two of them
          first:   { expo: {} }
          second:
              expo: {}
          # the end of the apps

      log:
        level: info

      """
    let expected = """
      # Our gateway.
      database: postgres://db/x

      apps: # two of them
          first:   { expo: {} }
          second:
              expo: {}
          zelador:
              ring_seconds: 20
              fcm:
                  service_account_file: fcm.json
              expo: {}
          # the end of the apps

      log:
        level: info

      """
    #expect(try stanza.added(to: text) == expected)
  }

  @Test(arguments: [
    "", "database: postgres://db/x", "database: postgres://db/x\n", "database: postgres://db/x\napps:\n",
  ])
  func `the section is made where it is missing`(text: String) throws {
    let added = try stanza.added(to: text)
    #expect(added.hasPrefix(text.isEmpty ? "apps:\n" : "database: postgres://db/x\napps:\n"), "\(added)")
    #expect(
      added.contains("\n  zelador:\n    ring_seconds: 20\n    fcm:\n      service_account_file: fcm.json\n    expo: {}")
    )
  }

  @Test func `apps on one line are refused`() {
    #expect(throws: ConfigurationStanza.Failure.self) { try stanza.added(to: "apps: { a: { expo: } }\n") }
  }

  @Test(arguments: [
    ("fcm.json", "fcm.json"), ("/etc/x-1/y_2.p8", "/etc/x-1/y_2.p8"), ("a b", #""a b""#), ("a: b", #""a: b""#),
    ("true", #""true""#), (#"a"b\"#, #""a\"b\\""#), ("- x", #""- x""#), ("", #""""#), ("# x", ##""# x""##),
  ])
  func `a value is read as the same text`(value: String, yaml: String) throws {
    let lines = ConfigurationStanza(app: "a", settings: [("locale", value)], sections: []).lines()
    #expect(lines == ["  a:", "    locale: \(yaml)"])
  }
}

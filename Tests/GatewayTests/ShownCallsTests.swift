// Apps whose calls Android shows by itself (`headless: false`). If the configuration allows them, the simulator accepts
// them, as Google does.

import SettingsTestSupport
import Dialects
import Foundation
import Phones
import Simulators
import Testing

@testable import Lab
@testable import Settings

@Suite("Calls that Android shows", .timeLimit(.minutes(10)))
struct ShownCallsTests {
  /// The dialect from docs/integrations/prosody.md.
  private func dialect() throws -> Dialect {
    let page = URL(filePath: #filePath).deletingLastPathComponent()
      .appending(path: "../../docs/integrations/prosody.md")
    let section = try String(contentsOf: page, encoding: .utf8).components(separatedBy: "### Calls on Android\n")[1]
    let example = section.components(separatedBy: "```yaml\n")[1].components(separatedBy: "\n```")[0]
      .replacing("service-account.json", with: "account.json")
    return try ConfigurationFolder().load("database: postgres://db/x\n\(example)").apps[0].dialect
  }

  @Test("the simulator accepts them, and phones show the call, and then its end")
  func areTaken() async throws {
    let dialect = try dialect()
    try await GatewayHarness.with(simulators: SimulatorSuite.Configuration()) {
      $0.apps[0].dialect = dialect
    } _: { gateway in
      let token = PhoneToken.fcm("android")
      let entry = #"[{"userId": "eva", "fcmToken": "\#(token)", "platform": "android", "locale": "nl"}]"#
      try await gateway.ring(#"{"callId": "c-1", "from": "ana@x", "fromName": "Ana"}"#, entry)
      try await gateway.settled()
      try await gateway.end("c-1", "declined")
      try await gateway.settled()
      #expect(await gateway.refusals() == [:])
      let pushes = await gateway.simulators.fcm.accepted.sorted { $0.at < $1.at }
      let phone = Phone(.commeazy, .android, .killed, variant: .seed)
      var memory = PhoneMemory()
      let reactions = try pushes.flatMap {
        phone.receives(try #require(PhonePush($0)), remembering: &memory).reactions
      }
      #expect(
        reactions == [
          .shows(title: "Ana", body: "Inkomende oproep", tap: "call"),
          .replaces(title: "Ana", body: "Gesprek beëindigd", tap: "app"),
        ])
    }
  }

  @Test("a strict simulator refuses them")
  func strictly() async throws {
    let dialect = try dialect()
    try await GatewayHarness.with {
      $0.apps[0].dialect = dialect
    } _: { gateway in
      let entry = #"[{"userId": "eva", "fcmToken": "\#(PhoneToken.fcm("android"))", "platform": "android"}]"#
      try await gateway.ring(#"{"callId": "c-1", "from": "ana@x"}"#, entry)
      try await gateway.settled()
      #expect(await gateway.refusals() != [:])
    }
  }
}

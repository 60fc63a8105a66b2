// The templates of docs/migrating.md for Matrix clients whose pushers have `format: event_id_only`.

import DialectsTestSupport
import Foundation
import HTTPSurfaceTestSupport
import Providers
import PushModel
import Runtime
import SettingsTestSupport
import Testing

@testable import Dialects
@testable import HTTPSurface
@testable import Settings

@Suite("Templates for Matrix", .timeLimit(.minutes(10)))
struct MatrixTemplatesTests {
  /// What a phone gets of a homeserver's request.
  private func push(_ request: String, _ provider: ProviderKind) throws -> NSDictionary {
    let page = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../docs/migrating.md")
    let text = try String(contentsOf: page, encoding: .utf8)
    let section = text.components(separatedBy: "**`format: event_id_only`**")[1]
    let example = section.components(separatedBy: "```yaml\n")[1].components(separatedBy: "\n```")[0]
    let app = try ConfigurationFolder().load("database: postgres://db/x\n\(example)").apps[0]
    let plan = MatrixPlan(
      notification: try MatrixNotification(JSONScanner(Array(request.utf8))),
      target: APIApps.Target(app: "porteiro", kind: provider == .fcm ? .fcm : .apns),
      token: HomeserverRequest.androidKey)
    guard case .enqueue(let call) = plan.action(at: 0) else { throw MissingCall() }
    var fixture = DeliveryFixture()
    fixture.payload = try parse(Data(call.payload))
    fixture.kind = .notification
    fixture.callKind = try #require(call.kind)
    fixture.platform = provider == .fcm ? .android : .ios
    let planner = CallPlanner(dialect: app.dialect, provider: provider, unknownName: app.unknownName)
    return try parse(Data(planner.plan(fixture.delivery, now: DeliveryFixture.now, tag: 1).get().body)) as NSDictionary
  }

  private struct MissingCall: Error {}

  private let ids: [String: Any] = ["room_id": "!slw48wfj34rtnrf:example.org", "event_id": HomeserverRequest().eventID]

  @Test("a phone gets the ids of the event, and an iPhone's service extension is started")
  func idsAlone() throws {
    let request = HomeserverRequest().eventIDOnly
    let aps: [String: Any] = [
      "alert": ["title": "Example Chat", "body": "New message"], "mutable-content": 1, "badge": 1,
    ]
    let onIPhone = ids.merging(["aps": aps, "unread_count": 1]) { $1 } as NSDictionary
    let onAndroid = ids.merging(["unread": "1", "prio": "high"]) { $1 } as NSDictionary
    #expect(try push(request, .apns) == onIPhone)
    #expect(try push(request, .fcm) == onAndroid)
  }

  @Test("of other pushers the sender is the title")
  func named() throws {
    let request = HomeserverRequest { $0.type = "m.room.message" }.json
    let alert = (try push(request, .apns)["aps"] as? [String: Any])?["alert"] as? [String: String]
    #expect(alert?["title"] == "Major Tom")
  }
}

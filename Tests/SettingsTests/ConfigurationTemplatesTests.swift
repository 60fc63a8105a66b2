// An app's own templates: their form, what they replace, and every kind of error.

import SettingsTestSupport
import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dialects
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct ConfigurationTemplatesTests {
  private let folder = try! ConfigurationFolder()

  private func yaml(_ app: String, dialect: String = "intercom") -> String {
    """
    database: postgres://db/x
    apps:
      a:
        dialect: \(dialect)
        fcm: { service_account_file: account.json }
        expo: {}
    \(app.split(separator: "\n", omittingEmptySubsequences: false).map { "    " + $0 }.joined(separator: "\n"))
    """
  }

  private func body(
    _ configuration: GatewayConfiguration, _ provider: ProviderKind, _ fixture: DeliveryFixture = DeliveryFixture()
  ) throws -> [String: Any] {
    let planner = CallPlanner(dialect: configuration.apps[0].dialect, provider: provider)
    return try parse(Data(try planner.plan(fixture.delivery, now: DeliveryFixture.now, tag: 1).get().body))
  }

  @Test func `a template replaces the one of the dialect, and the others stay`() throws {
    let shipped = try folder.load(yaml(""))
    let own = try folder.load(
      yaml(
        """
        templates:
          fcm:
            invite:
              type: door
              caller: ${fromName|from}
              details: { $string: { door: "${payload.doorCode}", floor: "${payload.floor:json}" } }
        """))
    #expect(
      try body(own, .fcm) as? [String: String]
        == ["type": "door", "caller": "Portaria \"Sul\" é", "details": #"{"door":"A1","floor":10}"#])
    #expect(try body(own, .expo) as NSDictionary == body(shipped, .expo) as NSDictionary)
    var cancel = DeliveryFixture()
    cancel.kind = .cancel
    #expect(try body(own, .fcm, cancel) as NSDictionary == body(shipped, .fcm, cancel) as NSDictionary)
    #expect(own.apps != shipped.apps)
    #expect(try folder.load(yaml("")) == shipped)
  }

  @Test func `a template for one system overrides the plain one, and the app's own plain one applies to all systems`()
    throws
  {
    let own = try folder.load(
      yaml(
        """
        templates:
          expo:
            invite: { data: { own: "yes" } }
            cancel.android: { data: { own: "yes" } }
        """))
    var fixture = DeliveryFixture()
    #expect(try body(own, .expo, fixture)["data"] as? [String: String] == ["own": "yes"])
    fixture.platform = .ios
    #expect(try body(own, .expo, fixture)["title"] == nil)  // not the dialect's invite.ios
    fixture.kind = .cancel
    #expect(try (body(own, .expo, fixture)["data"] as? [String: Any])?["action"] as? String == "call_cancelled")
    fixture.platform = .android
    #expect(try body(own, .expo, fixture)["data"] as? [String: String] == ["own": "yes"])
  }

  @Test func `templates can add a provider that the dialect does not support`() throws {
    #expect(try folder.message(yaml("", dialect: "telnyx")).contains("does not support calls over expo"))
    let own = try folder.load(
      yaml("templates: { expo: { invite: { data: { call_id: '${callId}' } } } }", dialect: "telnyx"))
    #expect(try body(own, .expo)["data"] as? [String: String] == ["call_id": DeliveryFixture().callID])
  }

  @Test func `unquoted values are JSON literals if they can be, and otherwise texts`() throws {
    let own = try folder.load(
      yaml(
        """
        templates:
          expo:
            invite.ios:
              badge: 1
              ratio: -0.5e1
              mutableContent: true
              subtitle: null
              sound: no
              title: 007
              body: "12"
              list: [1, a, [false]]
              data: { x: ~ }
        """))
    var fixture = DeliveryFixture()
    fixture.platform = .ios
    #expect(
      try body(own, .expo, fixture) as NSDictionary == [
        "badge": 1, "ratio": -5, "mutableContent": true, "subtitle": NSNull(), "sound": "no", "title": "007",
        "body": "12", "list": [1, "a", [false]] as [Any], "data": ["x": "~"],
      ] as NSDictionary)
  }

  @Test(arguments: [
    "fcm: { invite: { a: file } }\nexpo: { invite: { sound: file } }", #"{"fcm": {"invite": {"a": "file"}}}"#,
  ])
  func `templates can be in a file, and those in the configuration override them`(file: String) throws {
    try folder.write(file, to: "templates")
    var own = try folder.load(yaml("templates_file: templates"))
    #expect(try body(own, .fcm) as? [String: String] == ["a": "file"])
    own = try folder.load(yaml("templates_file: templates\ntemplates: { fcm: { invite: { a: here } } }"))
    #expect(try body(own, .fcm) as? [String: String] == ["a": "here"])
    #expect(try body(own, .expo)["sound"] as? String == (file.hasPrefix("{") ? nil : "file"))
  }

  @Test func `templates can come from the environment as JSON`() throws {
    let own = try folder.load(yaml(""), ["PUSH_GATEWAY_APPS_A_TEMPLATES": #"{"fcm": {"invite": {"a": "${callId}"}}}"#])
    #expect(try body(own, .fcm) as? [String: String] == ["a": DeliveryFixture().callID])
    #expect(
      try folder.message(yaml(""), ["PUSH_GATEWAY_APPS_A_TEMPLATES": #"{"fcm": {"invit": {"a": "b"}}}"#])
        .hasPrefix(
          "environment variable PUSH_GATEWAY_APPS_A_TEMPLATES: apps.a.templates.fcm: no such kind: invit; did you mean invite?"
        ))
    #expect(
      try folder.message(yaml(""), ["PUSH_GATEWAY_APPS_A_TEMPLATES": "x"])
        == "environment variable PUSH_GATEWAY_APPS_A_TEMPLATES: apps.a.templates: must be a mapping, in YAML or JSON: {PROVIDER: {KIND: {…}}}"
    )
  }

  // MARK: Faults

  @Test func `all faults are reported at once, each with its line and its key`() throws {
    let message = try folder.message(
      yaml(
        """
        templates:
          fcm:
            invite:
              name: ${fromNme}
              from: x
              count: 5
              nested:
                a: b
            ring: { a: b }
          apns:
            cancel: { aps: { alert: x } }
            missed_call:
              title: x
            message.ios: { aps: { badge: 1 } }
          expo:
            invite: { to: someone, $payload: others, data: { a: "${nope}" } }
            cancel: { data: "${metadata?}" }
          gcm: {}
        """))
    let lines = message.split(separator: "\n").map(String.init)
    let expected = [
      "gateway.yaml:10: apps.a.templates.fcm.invite.name: unknown placeholder ${fromNme}; did you mean fromName?",
      "gateway.yaml:11: apps.a.templates.fcm.invite.from: from is a reserved FCM data key",
      "gateway.yaml:12: apps.a.templates.fcm.invite.count: every value of an FCM data object is a string",
      "gateway.yaml:13: apps.a.templates.fcm.invite.nested: every value of an FCM data object is a string",
      "gateway.yaml:8: apps.a.templates.fcm: no such kind: ring; there are invite, cancel, missed_call, message",
      "gateway.yaml:17: apps.a.templates.apns.cancel: there is no cancel over APNs",
      "gateway.yaml:18: apps.a.templates.apns.missed_call: must have aps with an alert",
      "gateway.yaml:20: apps.a.templates.apns.message.ios: must have aps with an alert",
      "gateway.yaml:22: apps.a.templates.expo.invite.to: to is written by the gateway",
      "gateway.yaml:22: apps.a.templates.expo.invite.$payload: must stand inside data",
      "gateway.yaml:22: apps.a.templates.expo.invite.data.a: unknown placeholder ${nope}",
      "gateway.yaml:23: apps.a.templates.expo.cancel: must have at least one member that is not optional",
      "gateway.yaml:7: apps.a.templates: no such provider: gcm; did you mean fcm?",
    ]
    #expect(lines.count == expected.count)
    for beginning in expected { #expect(lines.contains { $0.hasPrefix(beginning) }, "\(beginning)\n\(message)") }
    #expect(lines == lines.sorted { Int($0.split(separator: ":")[1])! < Int($1.split(separator: ":")[1])! })
  }

  @Test func `faults of $push are reported with their lines as well`() throws {
    let message = try folder.message(
      yaml(
        """
        templates:
          fcm:
            message.ios:
              $push:
                ttl: soon
                apns:
                  payload:
                    aps:
                      alert: { title: "${nope}" }
              a: b
          expo:
            invite:
              channelId: calls
              $push: { colapse: none }
              data: { a: b }
        """))
    let expected = [
      "gateway.yaml:11: apps.a.templates.fcm.message.ios.$push.ttl: must be seconds, 0 to 2419200, or deadline",
      "gateway.yaml:15: apps.a.templates.fcm.message.ios.$push.apns.payload.aps.alert.title: unknown placeholder ${nope}",
      "gateway.yaml:19: apps.a.templates.expo.invite.channelId: channelId makes an Android phone show a notification",
      "gateway.yaml:20: apps.a.templates.expo.invite.$push.colapse: unknown: colapse; did you mean collapse?",
    ]
    let lines = message.split(separator: "\n").map(String.init)
    #expect(lines.count == expected.count)
    for beginning in expected { #expect(lines.contains { $0.hasPrefix(beginning) }, "\(beginning)\n\(message)") }
  }

  private static let shapes: [(app: String, message: String)] = [
    ("templates: fcm", "gateway.yaml:7: apps.a.templates: must be a section: PROVIDER: {KIND: {…}}"),
    ("templates: [fcm]", "gateway.yaml:7: apps.a.templates: must be a section: PROVIDER: {KIND: {…}}"),
    ("templates:", "gateway.yaml:7: apps.a.templates: has no value"),
    ("templates:\n  fcm: x", "gateway.yaml:8: apps.a.templates.fcm: must be an object with keys"),
    ("templates:\n  fcm:\n    invite: x", "gateway.yaml:9: apps.a.templates.fcm.invite: must be an object with keys"),
    ("templates:\n  fcm:\n    ? [a]\n    : b", "gateway.yaml:9: apps.a.templates: a key must be a plain word"),
    (
      "templates_file: no.yaml",
      "gateway.yaml:7: apps.a.templates_file: cannot read the file no.yaml: No such file or directory"
    ),
    (
      "templates_file: broken.yaml",
      "broken.yaml:2: apps.a.templates_file: is not YAML: did not find expected node content"
    ),
    (
      "templates_file: empty.yaml",
      "empty.yaml: apps.a.templates_file: must be a mapping, in YAML or JSON: {PROVIDER: {KIND: {…}}}"
    ),
    (
      "templates_file: faulty.yaml",
      "faulty.yaml:3: apps.a.templates_file.fcm.invite.gcm_x: gcm_x is a reserved FCM data key (so are from, message_type and all that begins with google or gcm)"
    ),
  ]

  @Test(arguments: shapes) func `a structural fault is reported with its file and line`(app: String, expected: String)
    throws
  {
    try folder.write("fcm: [\n", to: "broken.yaml")
    try folder.write("", to: "empty.yaml")
    try folder.write("fcm:\n  invite:\n    gcm_x: y\n", to: "faulty.yaml")
    #expect(try folder.message(yaml(app)) == expected)
  }

  @Test func `a call that an own template makes too large is not sent`() throws {
    let own = try folder.load(yaml("templates: { fcm: { invite: { a: '${payload.pad}', b: '${payload.pad}' } } }"))
    let planner = CallPlanner(dialect: own.apps[0].dialect, provider: .fcm)
    var fixture = DeliveryFixture()
    let empty = #"{"a":"","b":""}"#.utf8.count
    fixture.payload["pad"] = String(repeating: "x", count: (4096 - empty) / 2)
    #expect(throws: Never.self) { try planner.plan(fixture.delivery, now: DeliveryFixture.now, tag: 1).get() }
    fixture.payload["pad"] = String(repeating: "x", count: (4096 - empty) / 2 + 1)
    let failure = #expect(throws: PlanningFailure.self) {
      try planner.plan(fixture.delivery, now: DeliveryFixture.now, tag: 1).get()
    }
    #expect(failure?.reason == "PayloadTooLarge" && failure?.isExpired == false)
  }

  // MARK: docs/dialects.md

  /// The contents of the code blocks in one language.
  private func examples(_ language: String) throws -> [String] {
    let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../docs/dialects.md")
    return try String(contentsOf: file, encoding: .utf8).components(separatedBy: "```\(language)\n").dropFirst()
      .map { $0.components(separatedBy: "\n```")[0] }
  }

  @Test func `every example of the documentation is accepted, and renders as documented`() throws {
    let (configurations, rendered) = (try examples("yaml"), try examples("json"))
    #expect(configurations.count >= 2 && configurations.count == rendered.count)
    try folder.write(#"{"fcm": {"invite": {"call": "${callId}"}}}"#, to: "templates.json")
    for (configuration, json) in zip(configurations, rendered) {
      let own = try folder.load("database: postgres://db/x\n\(configuration)")
      var fixture = DeliveryFixture()
      fixture.payload = [
        "callId": "c-1", "from": "doorman-7", "fromName": "Portaria Sul", "metadata": ["camera": 2], "doorCode": "A1",
        "chatId": "room-7",
      ]
      fixture.kind = configuration.contains("message:") ? .notification : .invite
      if fixture.kind == .notification { fixture.callKind = "message" }
      #expect(
        try body(own, own.apps[0].providers[0], fixture) as NSDictionary == parse(Data(json.utf8)) as NSDictionary)
    }
  }

  @Test func `the documentation names every placeholder, kind and dialect`() throws {
    let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../docs/dialects.md")
    let text = try String(contentsOf: file, encoding: .utf8)
    for name in TemplateName.plainNames + PushTemplateKind.allCases.map(\.rawValue) + ShippedDialects.names {
      #expect(text.contains("`\(name)`"), "\(name)")
    }
  }
}

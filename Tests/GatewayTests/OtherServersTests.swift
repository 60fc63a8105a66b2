// A homeserver and a client of gorush, from their request to the phones.

import Foundation
import HTTPSurfaceTestSupport
import Simulators
import TestSupport
import Testing

@testable import Gateway
@testable import HTTPSurface
@testable import Settings

@Suite("Clients of other push servers", .timeLimit(.minutes(10)))
struct OtherServersTests {
  private static let notify = "/_matrix/push/v1/notify"

  /// A gateway with an API on which both paths are on.
  private static func with(_ body: (GatewayHarness, APIHarness) async throws -> Void) async throws {
    try await GatewayHarness.with(adjust: {
      $0.apps[0].matrix = MatrixAppIDs(
        patterns: [
          .voip: [MatrixAppIDs.Pattern("com.example.app.voip")!], .apns: [MatrixAppIDs.Pattern("com.example.app")!],
          .fcm: [MatrixAppIDs.Pattern("com.example.app.android")!],
        ])
    }) { gateway in
      try await APIHarness.with(
        adjust: {
          $0.matrixNetworks = [IPRange("127.0.0.1")!]
          $0.gorush = GatewayConfiguration.Gorush(networks: [IPRange("127.0.0.1")!], app: "porteiro")
        }, apiApps: gateway.service.apiApps, on: gateway.database
      ) { api in try await body(gateway, api) }
    }
  }

  @Test func `phones ring from a Matrix invite, once, and stop at its hang-up`() async throws {
    try await Self.with { gateway, api in
      let apple = HomeserverRequest {
        $0.appID = "com.example.app.voip"
        $0.pushKey = HomeserverRequest.appleKey
      }
      for request in [HomeserverRequest(), apple, HomeserverRequest(), apple] {
        #expect(try await api.send("POST", Self.notify, request.json, key: "").body == #"{"rejected":[]}"#)
      }
      let voip = try #require(try await gateway.simulators.apnsProduction.waitForAccepted(1).first)
      #expect(voip.token == HomeserverRequest.appleToken)
      #expect(voip.kind == "voip" && voip.topic == "com.example.app.voip")
      #expect(voip.text.contains("16f1b2c8d7e6") && voip.text.contains("Major Tom"))
      let fcm = try #require(try await gateway.simulators.fcm.waitForAccepted(1).first)
      #expect(fcm.token == HomeserverRequest.androidKey)
      #expect(fcm.text.contains("!slw48wfj34rtnrf:example.org"))
      try await gateway.settled()
      let hangUp = HomeserverRequest {
        $0.type = "m.call.hangup"
        $0.eventID = "$hangup"
        $0.content = #"{"call_id":"16f1b2c8d7e6","reason":"invite_timeout"}"#
      }
      #expect(try await api.send("POST", Self.notify, hangUp.json, key: "").status == 200)
      let cancel = try await gateway.simulators.fcm.waitForAccepted(2)[1]
      #expect(cancel.text.contains("call_cancelled"))
      try await gateway.settled()
      #expect(
        await gateway.pushesByToken().values.sorted() == [1, 2], "the repetitions rang nothing, and no call is missed")
      #expect(await gateway.refusals() == [:])
    }
  }

  @Test func `a token that the provider calls dead is rejected at the next event, and only then`() async throws {
    try await Self.with { gateway, api in
      var request = HomeserverRequest { $0.pushKey = "fault-UNREGISTERED-0123456789" }
      #expect(try await api.send("POST", Self.notify, request.json, key: "").body == #"{"rejected":[]}"#)
      try await gateway.settled()
      try await gateway.database.wait(for: "select exists (select from push.token_invalidations)")
      request.type = "m.room.message"
      #expect(
        try await api.send("POST", Self.notify, request.json, key: "").body
          == #"{"rejected":["fault-UNREGISTERED-0123456789"]}"#)
      try await gateway.expectOutcomes("fcm dead 1")
      request = HomeserverRequest { $0.pushKey = "fault-UNAVAILABLE-0123456789" }
      #expect(try await api.send("POST", Self.notify, request.json, key: "").body == #"{"rejected":[]}"#)
      request.type = "m.room.message"
      #expect(try await api.send("POST", Self.notify, request.json, key: "").body == #"{"rejected":[]}"#)
    }
  }

  @Test func `a message is shown without its text, and its repetition is not`() async throws {
    try await Self.with { gateway, api in
      let request = HomeserverRequest {
        $0.type = "m.room.message"
        $0.content = #"{"msgtype":"m.text","body":"I'm floating in a most peculiar way."}"#
        $0.appID = "com.example.app"
        $0.pushKey = HomeserverRequest.appleKey
      }
      for _ in 0..<3 { #expect(try await api.send("POST", Self.notify, request.json, key: "").status == 200) }
      let push = try #require(try await gateway.simulators.apnsProduction.waitForAccepted(1).first)
      #expect(push.kind == "alert")
      #expect(push.text.contains("Major Tom") && !push.text.contains("peculiar"))
      try await gateway.settled()
      #expect(await gateway.pushesByToken() == [HomeserverRequest.appleToken: 1])
    }
  }

  @Test func `phones ring and stop from gorush's requests`() async throws {
    try await Self.with { gateway, api in
      func request(_ type: String) -> String {
        #"""
        {"notifications":[
          {"tokens":["\#(String(repeating: "ef", count: 32))"],"platform":1,"push_type":"voip","data":{"type":"\#(type)","callId":"gorush-1","from":"d"}},
          {"tokens":["gorush-phone-0123456789"],"platform":2,"data":{"type":"\#(type)","callId":"gorush-1","from":"d"}}]}
        """#
      }
      let rung = try await api.send("POST", "/api/push", request("intercom_call"), key: "")
      #expect(rung.body == #"{"counts":2,"logs":[],"success":"ok"}"#)
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(1)
      let push = try #require(try await gateway.simulators.fcm.waitForAccepted(1).first)
      #expect(push.text.contains("gorush-1"))
      try await gateway.settled()
      #expect(
        try await api.send("POST", "/api/push", request("intercom_call_end"), key: "").body.contains(#""logs":[]"#))
      #expect(try await gateway.simulators.fcm.waitForAccepted(2)[1].text.contains("call_cancelled"))
      try await gateway.settled()
      try await gateway.expectOutcomes("apns delivered 1,fcm delivered 2")
    }
  }

  @Test func `other app ids are taken over without a restart`() async throws {
    try await GatewayHarness.with(watchesFiles: true) { gateway in
      try gateway.editConfiguration {
        $0.replacing("    fcm:\n", with: "    matrix: { fcm: com.example.late.* }\n    fcm:\n")
          + "api: { matrix: { networks: 127.0.0.1 } }\n"
      }
      #expect(gateway.service.apiApps.target(of: "com.example.late.android") == nil)
      await gateway.service.reload()
      #expect(gateway.service.apiApps.target(of: "com.example.late.android")?.app == "porteiro")
    }
  }
}

extension AcceptedPush {
  fileprivate var text: String { String(decoding: payload, as: UTF8.self) }
}

// `simulate --explain`: which phones a push reaches, what they do, and the source.

import Phones
import Simulators
import TestSupport
import Testing

@testable import Lab

@Suite(.timeLimit(.minutes(10))) struct PushExplainerTests {
  @Test func `each accepted push is explained for each phone that it may have reached`() async throws {
    var pushes: [AcceptedPush] = []
    try await GatewayHarness.speaking("intercom") { gateway in
      try await gateway.ring(
        #"{"callId": "7d4e3a52-53cb-4a4e-9f0c-5d8a2f9d1c11", "from": "d", "fromName": "Ana"}"#,
        """
        [{"userId": "a", "voipPushToken": "\(PhoneToken.voip)"},
         {"userId": "b", "fcmToken": "\(PhoneToken.fcm("b"))", "platform": "android"}]
        """)
      try await gateway.settled()
      pushes = await gateway.simulators.apnsProduction.accepted + gateway.simulators.fcm.accepted
    }
    let voip = PushExplainer.text(of: pushes[0], on: .porteiro, variant: .today)
    #expect(
      voip.hasPrefix(
        "apns voip \(pushes[0].id)\n  iPhone: rings: “d”  [porteiroapp apps/expo/plugins/withVoipCallKit"))
    #expect(voip.split(separator: "\n").count == 2)
    let fcm = PushExplainer.text(of: pushes[1], on: .porteiro, variant: .today)
    #expect(
      fcm.contains("  Android, open: rings: “Ana”  [") && fcm.contains("  Android, background/killed: rings: “Ana”  ["))
    #expect(fcm.contains("  iPhone, "))
    #expect(!fcm.contains(PhoneToken.fcm("b")) && !voip.contains(PhoneToken.voip))
    let mistaken = PushExplainer.text(of: pushes[0], on: .telnyx, variant: .today)
    #expect(mistaken.contains("iPhone: the app ends  [flutter-voice-sdk ios/Runner/AppDelegate.swift"))
  }
}

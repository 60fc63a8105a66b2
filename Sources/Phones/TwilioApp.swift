// react-native-twilio-phone: PushKit on iPhones, the Twilio SDK behind Firebase's handlers on Android.

struct TwilioApp: PhoneApp {
  let variant: PhoneVariant

  private static let voipRule = "react-native-twilio-phone example/ios/TwilioPhoneExample/AppDelegate.m:100-123"
  private static let messageRule =
    "react-native-twilio-phone src/RNTwilioPhone.ts:101-114,165-169; android/…/TwilioPhoneModule.kt:59-101"

  /// Every VoIP push is reported. It can be answered only if the SDK accepts it (ios/TwilioPhone.swift:67-85).
  func voip(_ payload: PhoneJSON) -> PhoneOutcome {
    for name in ["twi_from", "twi_to"] where payload[name] != nil && payload[name]?.text == nil {
      return .crashes("\(Self.voipRule): \(name) is sent stringByReplacingOccurrencesOfString")
    }
    return .rings(
      PhoneRing(
        callID: payload["twi_call_sid"]?.text, caller: Self.shown(payload["twi_from"]?.text ?? ""),
        canBeAnswered: Self.isInvite(payload)), Self.voipRule)
  }

  /// CallKeep gets a new id for each push (example/ios/TwilioPhoneExample/AppDelegate.m:102, src/RNTwilioPhone.ts:207).
  func id(of ring: PhoneRing, over channel: PhonePush.Channel, _ state: PhoneState) -> String? { nil }

  func presents(_ userInfo: PhoneJSON) -> PhoneOutcome {
    .ignores(
      "react-native-twilio-phone src/RNTwilioPhone.ts:177-201: the app registers for nothing but VoIP on iPhones")
  }

  func tap(_ userInfo: PhoneJSON) -> (leadsTo: String, rule: String) {
    ("app", "no handler of taps in src/RNTwilioPhone.ts")
  }

  func androidMessage(_ data: PhoneJSON, _ state: PhoneState, secondsLate: Double) -> PhoneOutcome {
    if Self.isInvite(data) {
      return .rings(
        PhoneRing(callID: data["twi_call_sid"]?.text, caller: Self.shown(data["twi_from"]?.text ?? "")),
        "\(Self.messageRule); RNTwilioPhone.ts:206-217")
    }
    if data["twi_message_type"]?.text == "twilio.voice.cancel", variant == .seed,
      let callID = data["twi_call_sid"]?.text
    {
      return PhoneOutcome([.stops(callID: callID)], "SDK docs §2.2: onCancelledCallInvite")
    }
    return .ignores("\(Self.messageRule): no valid Twilio payload; SDK 6 takes no cancel (CLIENTS §2, error 31302)")
  }

  /// The members that the SDK requires in an invite (CLIENTS §2; SDK 6.0.7 by android/build.gradle:131).
  private static func isInvite(_ data: PhoneJSON) -> Bool {
    data["twi_message_type"]?.text == "twilio.voice.call"
      && ["twi_call_sid", "twi_bridge_token"].allSatisfy { data[$0]?.text?.isEmpty == false }
      // In Twilio's own pushes all values are strings. The SDK is closed, so its handling of null is unknown: the worst case is assumed.
      && data.members.allSatisfy { !$0.key.hasPrefix("twi_") || $0.value.text != nil }
  }

  private static func shown(_ identity: String) -> String {
    identity.split(separator: "client:", omittingEmptySubsequences: false).joined()
  }
}

// A phone with one system's app, and its reaction to a push that its provider accepted.
//
// The rules come from the sources of the apps and their libraries, not from what this gateway sends. Each rule names its source.
// Repositories: johnpgr/porteiroapp (develop, ebd9772), MrHertal/react-native-twilio-phone (da69d6a), Ram2299007/enclosure_ios_2025
// (c56d59f), team-telnyx/flutter-voice-sdk (dc51635), bertvancapelle/CommEazy (ab52ca0), expo/expo (03d74c6),
// invertase/react-native-firebase (4ef21d0), react-native-webrtc/react-native-callkeep (db693d5). "seed N" and "CLIENTS" are the
// systems' own documents.

/// The systems whose phones are modelled.
public enum PhoneSystem: String, CaseIterable, Sendable {
  case porteiro
  case twilio
  case enclosure
  case telnyx
  case commeazy

  /// The name of the dialect for its phones.
  public var dialect: String { self == .porteiro ? "intercom" : rawValue }
}

/// Which version of an app is modelled: the one its system's document specifies, or its current source.
public enum PhoneVariant: String, CaseIterable, Sendable {
  case seed
  case today
}

public enum PhonePlatform: String, CaseIterable, Sendable {
  case ios
  case android
  /// A browser, with a service worker instead of an app.
  case web
}

/// The state of the app when the push arrives.
public enum PhoneState: String, CaseIterable, Sendable {
  case open
  case background
  case killed
}

/// A push as a provider delivers it to a phone.
public struct PhonePush: Sendable {
  public enum Channel: String, Sendable {
    /// APNs, push type `voip`.
    case voip
    /// APNs, push type `alert` or `background`.
    case apns
    case fcm
    case expo
    case webpush
  }

  public var channel: Channel
  /// APNs: the payload; FCM: the `message` object; Expo: the message object; web push: the decrypted content.
  public var message: PhoneJSON
  /// The collapse id that the provider got; nil for none.
  public var collapseID: String?
  /// Seconds from sending to arrival.
  public var secondsLate: Double

  /// - Parameter collapseID: only for APNs, where it is a header; over FCM and Expo the message contains it.
  /// - Returns: nil if the message is not JSON.
  public init?(
    _ channel: Channel, message: some Sequence<UInt8>, collapseID: String? = nil, secondsLate: Double = 0
  ) {
    guard let json = PhoneJSON(message) else { return nil }
    self.channel = channel
    self.message = json
    self.secondsLate = secondsLate
    switch channel {
    case .voip, .apns: self.collapseID = collapseID
    case .fcm: self.collapseID = json["apns"]?["headers"]?["apns-collapse-id"]?.text
    case .expo: self.collapseID = json["collapseId"]?.text
    case .webpush: self.collapseID = nil
    }
  }
}

extension PhonePush {
  /// The key by which a phone finds the notification that this one replaces; nil for none.
  func place(on phone: Phone) -> String? {
    switch phone.platform {
    case .ios: collapseID
    case .web: message["tag"]?.text
    // expo-notifications shows FCM data (FirebaseMessagingDelegate.kt, getNotificationIdentifier); else an app in front shows its own.
    case .android where phone.system == .porteiro: message["data"]?["tag"]?.text
    case .android where phone.state == .open: nil
    case .android: (message["android"]?["notification"] ?? message["notification"])?["tag"]?.text
    }
  }
}

/// One thing a phone does.
public enum PhoneReaction: Equatable, Sendable {
  /// It rings.
  case rings(PhoneRing)
  /// A ringing call stops.
  case stops(callID: String)
  /// A notification is shown. `tap` is what a tap opens.
  case shows(title: String, body: String, tap: String)
  /// A notification replaces one that the system has shown before.
  case replaces(title: String, body: String, tap: String)
  /// The app is woken and shows nothing.
  case wakes
  case ignores
  /// The app ends: it crashes, or iOS ends it.
  case crashes
}

/// A ringing call, as the user and the app see it.
public struct PhoneRing: Equatable, Sendable {
  public var callID: String?
  /// The caller's name on the screen.
  public var caller: String
  public var isVideo: Bool
  /// Whether answering can lead to the call.
  public var canBeAnswered: Bool
  /// The person under whom the app stores the call; nil if it stores none.
  public var filedUnder: String?
  /// Whether it rings only if iOS wakes the app, which is not guaranteed.
  public var isOnlyIfWoken: Bool

  public init(
    callID: String?, caller: String, isVideo: Bool = false, canBeAnswered: Bool = true, filedUnder: String? = nil,
    isOnlyIfWoken: Bool = false
  ) {
    self.callID = callID
    self.caller = caller
    self.isVideo = isVideo
    self.canBeAnswered = canBeAnswered
    self.filedUnder = filedUnder
    self.isOnlyIfWoken = isOnlyIfWoken
  }
}

/// A phone's reaction to one push, and the source of the rule.
public struct PhoneOutcome: Equatable, Sendable {
  public var reactions: [PhoneReaction]
  /// The source's file and lines.
  public var rule: String

  public init(_ reactions: [PhoneReaction], _ rule: String) {
    self.reactions = reactions
    self.rule = rule
  }

  static func ignores(_ rule: String) -> PhoneOutcome { PhoneOutcome([.ignores], rule) }
  static func crashes(_ rule: String) -> PhoneOutcome { PhoneOutcome([.crashes], rule) }
  static func rings(_ ring: PhoneRing, _ rule: String) -> PhoneOutcome { PhoneOutcome([.rings(ring)], rule) }
}

/// A phone with an app in one state.
public struct Phone: Sendable {
  public var system: PhoneSystem
  public var variant: PhoneVariant
  public var platform: PhonePlatform
  public var state: PhoneState

  public init(
    _ system: PhoneSystem, _ platform: PhonePlatform, _ state: PhoneState, variant: PhoneVariant = .today
  ) {
    self.system = system
    self.variant = variant
    self.platform = platform
    self.state = state
  }

  /// The reaction to a push if the phone has received no other.
  public func receives(_ push: PhonePush) -> PhoneOutcome {
    var memory = PhoneMemory()
    return receives(push, remembering: &memory)
  }

  /// The reaction to a push after those in `memory`.
  public func receives(_ push: PhonePush, remembering memory: inout PhoneMemory) -> PhoneOutcome {
    memory.apply(reads(push), of: push, on: self, by: app)
  }

  private func reads(_ push: PhonePush) -> PhoneOutcome {
    switch (push.channel, platform) {
    case (.voip, .ios): app.voip(push.message)
    case (.voip, .android), (.apns, .android): .ignores("APNs reaches no Android phone")
    case (.apns, .ios): onIPhone(push.message)
    case (.fcm, .ios): onIPhone(Self.userInfo(ofFCM: push.message))
    case (.expo, .ios): onIPhone(Self.userInfo(ofExpo: push.message))
    case (.fcm, .android): fcmOnAndroid(push)
    case (.expo, .android): expoOnAndroid(push)
    case (.webpush, .web): ServiceWorker.receives(push.message, secondsLate: push.secondsLate)
    case (.webpush, _), (_, .web): .ignores("web push, and nothing else, reaches browsers")
    }
  }

  private var app: any PhoneApp {
    switch system {
    case .porteiro: PorteiroApp(variant: variant)
    case .twilio: TwilioApp(variant: variant)
    case .enclosure: EnclosureApp()
    case .telnyx: TelnyxApp(variant: variant)
    case .commeazy: CommEazyApp(variant: variant)
    }
  }

  // MARK: - iPhones

  /// A push that is not a VoIP push: what iOS shows, unless the app is in the foreground and decides.
  private func onIPhone(_ userInfo: PhoneJSON) -> PhoneOutcome {
    let aps = userInfo["aps"]
    let wakes = aps?["content-available"]?.bridgedBoolean == true
    guard let alert = aps?["alert"] else {
      guard wakes || state == .open else {
        return .ignores("CLIENTS, rules: a data message reaches no iPhone app that is not in front")
      }
      return app.wakes(userInfo, state)
    }
    if state == .open { return app.presents(userInfo) }
    let (title, body) = Self.texts(of: alert)
    let tap = app.tap(userInfo)
    let shows = PhoneReaction.shows(title: title, body: body, tap: tap.leadsTo)
    let rule = "iOS shows aps.alert; \(tap.rule)"
    guard wakes, let woken = app.wakesBesides(userInfo, state) else { return PhoneOutcome([shows], rule) }
    return PhoneOutcome([shows] + woken.reactions, "\(rule); \(woken.rule)")
  }

  static func texts(of alert: PhoneJSON) -> (title: String, body: String) {
    if let text = alert.text { return ("", text) }
    let title = [alert["title"]?.text, alert["subtitle"]?.text].compactMap { $0 }.joined(separator: " · ")
    return (title, alert["body"]?.text ?? "")
  }

  /// FCM puts the data beside `aps`, and its own `gcm.message_id` (firebase.google.com, REST v1, `ApnsConfig.payload`).
  private static func userInfo(ofFCM message: PhoneJSON) -> PhoneJSON {
    var members = message["data"]?.members ?? [:]
    members.merge(message["apns"]?["payload"]?.members ?? [:]) { $1 }
    members["gcm.message_id"] = .text("0")
    if let notification = message["notification"] {
      var aps = members["aps"]?.members ?? [:]
      aps["alert"] = aps["alert"] ?? notification
      members["aps"] = .object(aps)
    }
    return .object(members)
  }

  /// Expo makes an alert of title and body, and puts `data` under `body` (docs.expo.dev, push notifications, payload format).
  private static func userInfo(ofExpo message: PhoneJSON) -> PhoneJSON {
    var aps: [String: PhoneJSON] = [:]
    if message["title"] != nil || message["body"] != nil {
      aps["alert"] = .object(["title": message["title"] ?? .text(""), "body": message["body"] ?? .text("")])
    }
    if message["_contentAvailable"]?.bridgedBoolean == true { aps["content-available"] = .number(1) }
    aps["category"] = message["categoryId"]
    return .object(["aps": .object(aps), "body": message["data"] ?? .object([:])])
  }

  // MARK: - Android

  private func fcmOnAndroid(_ push: PhonePush) -> PhoneOutcome {
    let android = push.message["android"]
    let data = push.message["data"] ?? .object([:])
    if let shown = android?["notification"] ?? push.message["notification"], state != .open {
      let shows = PhoneReaction.shows(
        title: shown["title"]?.text ?? "", body: shown["body"]?.text ?? "", tap: app.tap(Self.intent(data)).leadsTo)
      // Firebase's libraries run the app's handler beside it (react-native-firebase
      // ReactNativeFirebaseMessagingReceiver.java:49-76, and FlutterFire alike); expo-notifications does not.
      let own = system == .porteiro ? [] : app.androidMessage(data, state, secondsLate: push.secondsLate).reactions
      return PhoneOutcome(
        [shows] + own.filter { $0 != .ignores },
        "Android shows a notification message by itself while the app is not in front (Firebase, receive messages)")
    }
    guard state == .open || android?["priority"]?.text?.uppercased() == "HIGH" else {
      return .ignores(
        "react-native-firebase ReactNativeFirebaseMessagingReceiver.java:73-79: no headless task without high priority")
    }
    return app.androidMessage(data, state, secondsLate: push.secondsLate)
  }

  /// When a notification is tapped, Firebase gives the app the data and an id of its own (react-native-firebase
  /// NativeRNFBTurboMessaging.java:131-160).
  private static func intent(_ data: PhoneJSON) -> PhoneJSON {
    .object(data.members.merging(["gcm.message_id": .text("0")]) { $1 })
  }

  /// Expo sends Android only data, unless the message has a member of a notification (CLIENTS, rules; also in
  /// porteiroapp apps/interfone-api/src/services/push.service.ts:154-157).
  private func expoOnAndroid(_ push: PhonePush) -> PhoneOutcome {
    let message = push.message
    let data = message["data"] ?? .object([:])
    let isVisible = ["title", "subtitle", "body", "icon", "channelId"].contains { message[$0] != nil }
    if isVisible, state != .open {
      return PhoneOutcome(
        [.shows(title: message["title"]?.text ?? "", body: message["body"]?.text ?? "", tap: app.tap(data).leadsTo)],
        "CLIENTS, rules: Android shows what Expo made a notification of, and the app's task does not run")
    }
    guard state == .open || message["priority"]?.text == "high" else {
      return .ignores("CLIENTS, rules: normal priority starts no headless task")
    }
    return app.expoTask(data, state, message: message)
  }
}

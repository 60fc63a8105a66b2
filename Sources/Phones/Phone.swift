// A phone with one system's app on it, and what it does with a push that its provider accepted.
//
// The rules are read from the apps' own sources and the libraries under them, not from what this gateway sends; each names where it
// was read. Repositories: johnpgr/porteiroapp (develop, ebd9772), MrHertal/react-native-twilio-phone (da69d6a),
// Ram2299007/enclosure_ios_2025 (c56d59f), team-telnyx/flutter-voice-sdk (dc51635), bertvancapelle/CommEazy (ab52ca0),
// expo/expo (03d74c6), invertase/react-native-firebase (4ef21d0), react-native-webrtc/react-native-callkeep (db693d5). "seed N" and "CLIENTS" are the systems' own documents.

/// The systems whose phones can be asked.
public enum PhoneSystem: String, CaseIterable, Sendable {
  case porteiro
  case twilio
  case enclosure
  case telnyx
  case commeazy

  /// The dialect that its phones are spoken to in.
  public var dialect: String { self == .porteiro ? "intercom" : rawValue }
}

/// Which text of an app is read: what its system's document lays down, or its source as it stands.
public enum PhoneVariant: String, CaseIterable, Sendable {
  case seed
  case today
}

public enum PhonePlatform: String, CaseIterable, Sendable {
  case ios
  case android
}

/// Where the app is when the push comes.
public enum PhoneState: String, CaseIterable, Sendable {
  case open
  case background
  case killed
}

/// A push as a provider hands it to a phone.
public struct PhonePush: Sendable {
  public enum Channel: String, Sendable {
    /// APNs, push type `voip`.
    case voip
    /// APNs, push type `alert` or `background`.
    case apns
    case fcm
    case expo
  }

  public var channel: Channel
  /// APNs: the payload; FCM: the `message` object; Expo: the message object.
  public var message: PhoneJSON
  /// What its provider was told that it takes the place of; nil for nothing.
  public var collapseID: String?
  /// How long it was under way.
  public var secondsLate: Double

  /// - Parameter collapseID: over APNs, where it is a header; over FCM and Expo the message says it.
  /// - Returns: nil if the message is no JSON.
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
    }
  }
}

extension PhonePush {
  /// By what a phone knows the notification whose place this one takes; nil for none.
  func place(on phone: Phone) -> String? {
    switch phone.platform {
    case .ios: collapseID
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
  /// A call that rang rings no more.
  case stops(callID: String)
  /// The person sees it. `tap` is where touching it leads.
  case shows(title: String, body: String, tap: String)
  /// The system shows it in the place of what it has shown before.
  case replaces(title: String, body: String, tap: String)
  /// The app is woken and shows nothing.
  case wakes
  case ignores
  /// The app ends, by its own fault or because iOS ends it.
  case crashes
}

/// A ringing call, as the person and the app have it.
public struct PhoneRing: Equatable, Sendable {
  public var callID: String?
  /// Who calls, as the screen says.
  public var caller: String
  public var isVideo: Bool
  /// Whether answering can lead to the call.
  public var canBeAnswered: Bool
  /// Under whom the app files the call; nil where it files none.
  public var filedUnder: String?
  /// Whether it rings only if iOS wakes the app, which nothing assures.
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

/// What a phone does with one push, and where that is written.
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

/// A phone.
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

  /// What it does with a push when it has seen no other.
  public func receives(_ push: PhonePush) -> PhoneOutcome {
    var memory = PhoneMemory()
    return receives(push, remembering: &memory)
  }

  /// What it does with a push after those that it remembers.
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

  /// A push that is no VoIP push. What iOS shows of it, unless the app is in front and decides itself.
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

  /// Firebase gives the app that a touched notification opens the data, and an id of its own (react-native-firebase
  /// NativeRNFBTurboMessaging.java:131-160).
  private static func intent(_ data: PhoneJSON) -> PhoneJSON {
    .object(data.members.merging(["gcm.message_id": .text("0")]) { $1 })
  }

  /// Expo sends Android data only, unless a member is there that a notification is made of (CLIENTS, rules; the same is said in
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

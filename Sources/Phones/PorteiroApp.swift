// Porteiro: CallKeep, PushKit on iPhones, Expo's background task on Android.

struct PorteiroApp: PhoneApp {
  let variant: PhoneVariant

  private static let voipRule = "porteiroapp apps/expo/plugins/withVoipCallKit/ios/VoipCallKitHandler.mm:68-111"
  private static let taskRule = "porteiroapp apps/expo/services/notification/backgroundTask.ts:19-80,122-155"
  private static let listenerRule =
    "porteiroapp apps/expo/app/(app)/morador/providers/IntercomNotificationListeners.tsx:6-80"
  private static let handlerRule = "porteiroapp apps/expo/services/notification/notificationHandler.ts:25-52"

  private static let displayRule =
    "porteiroapp apps/expo/services/calling/CallCoordinator.ts:369-373,795; react-native-callkeep ios/RNCallKeep/RNCallKeep.m:278-288,"
    + "779,790: CallKit is given no id, and the app ends"

  private static let wokenRule =
    "porteiroapp apps/expo/app.json:68-72, services/notification/backgroundTask.ts:65-70,105,173-199, "
    + "services/calling/CallCoordinator.ts:363-373; expo-notifications ios/…/BackgroundEventTransformer.swift: if iOS wakes the app"
  private static let closedRule =
    "Apple, \u{201C}Pushing background updates to your App\u{201D}: iOS wakes no app that the person has closed"
  private static let answerRule =
    "porteiroapp apps/expo/services/calling/CallKeepService.ts:264-283,342-353; react-native-callkeep "
    + "ios/RNCallKeep/RNCallKeep.m:1084,1094: the answer has CallKit's id in lowercase letters"

  /// A call that CallKit shows. When it is answered, the app looks for CallKit's id, in lowercase, in its map of calls. Over VoIP the
  /// map contains the id in uppercase, or a made-up UUID if the call id is not a UUID (VoipCallKitHandler.mm:90-100), and the look-up
  /// fails. So the app finds only a call whose own id is a UUID in lowercase.
  private func ring(_ callID: String?, _ caller: String) -> PhoneRing {
    PhoneRing(callID: callID, caller: caller, canBeAnswered: callID.map(PhoneUUID.isLowercase) == true)
  }

  /// Every VoIP push is reported as a call, whatever its content.
  func voip(_ payload: PhoneJSON) -> PhoneOutcome {
    func first(_ names: [String], else fallback: String) -> PhoneJSON {
      names.lazy.compactMap { payload[$0] }.first ?? .text(fallback)  // NSNull is not nil
    }
    let callID = first(["callId", "call_id"], else: "unknown")
    let caller = first(["callerName", "fromName", "from_name"], else: "Porteiro")
    let from = first(["from"], else: "")
    guard let id = callID.text, from.text != nil, caller.text != nil else {
      return .crashes("\(Self.voipRule): a number or null where a text is sent a message")
    }
    // Today's handler gives CallKit `from` as the handle, and no name (:100-105).
    let shown = variant == .today ? from : caller
    return .rings(ring(id, shown.text ?? ""), "\(Self.voipRule); \(Self.answerRule)")
  }

  /// CallKit makes one call for each UUID. For an id that is not a UUID, each VoIP push makes a new call. JavaScript compares only the id
  /// (services/calling/CallCoordinator.ts:308-340).
  func id(of ring: PhoneRing, over channel: PhonePush.Channel, _ state: PhoneState) -> String? {
    channel == .voip && ring.callID.map(PhoneUUID.isOne) != true ? nil : ring.callID
  }

  func presents(_ userInfo: PhoneJSON) -> PhoneOutcome {
    let data = userInfo["body"].flatMap { $0.text == nil ? $0 : nil } ?? userInfo
    return listened(data).map(displayed) ?? banner(userInfo, Self.handlerRule)
  }

  /// An iPhone's app in the foreground shows the call with CallKeep. The id must be a UUID.
  private func displayed(_ call: PhoneRing) -> PhoneOutcome {
    guard call.callID.map(PhoneUUID.isOne) == true else { return .crashes(Self.displayRule) }
    return .rings(ring(call.callID, call.caller), "\(Self.listenerRule); \(Self.answerRule)")
  }

  func tap(_ userInfo: PhoneJSON) -> (leadsTo: String, rule: String) {
    guard userInfo["aps"]?["category"]?.text == "call", userInfo["body"]?["type"]?.text == "intercom_call" else {
      return ("app", "porteiroapp IntercomNotificationListeners.tsx:82-93: a tap is only logged")
    }
    return (
      "the call if iOS woke the app, as do its buttons Answer and Decline",
      "porteiroapp apps/expo/services/notification/notificationHandler.ts:141-157, providers/NotificationProvider.tsx:33-69"
    )
  }

  func wakes(_ userInfo: PhoneJSON, _ state: PhoneState) -> PhoneOutcome {
    let data = userInfo["body"].flatMap { $0.text == nil ? $0 : nil } ?? userInfo
    if state == .open { return listened(data).map(displayed) ?? .ignores(Self.listenerRule) }
    guard state == .background else { return .ignores(Self.closedRule) }
    return wakesBesides(userInfo, state) ?? PhoneOutcome([.wakes], Self.wokenRule)
  }

  /// The background task runs on an iPhone, too, and shows the call with CallKeep, but only when iOS wakes the app, which it rations.
  func wakesBesides(_ userInfo: PhoneJSON, _ state: PhoneState) -> PhoneOutcome? {
    guard state == .background, let body = userInfo["body"] else { return nil }
    let task = task(body.text.flatMap { PhoneJSON($0.utf8) } ?? body, isText: true)
    guard case .rings(let call)? = task.reactions.first else { return nil }
    guard call.callID.map(PhoneUUID.isOne) == true else { return .crashes("\(Self.wokenRule); \(Self.displayRule)") }
    var ring = ring(call.callID, call.caller)
    ring.isOnlyIfWoken = true
    return .rings(ring, "\(Self.wokenRule); \(Self.answerRule)")
  }

  /// Raw FCM: expo-notifications hands the task the data, and the listener the content that it makes of them.
  func androidMessage(_ data: PhoneJSON, _ state: PhoneState, secondsLate: Double) -> PhoneOutcome {
    state == .open ? inFront(data, listenerData(data)) : behind(data)
  }

  /// Expo's own messages have the data as JSON text in `body` (and the serializer adds `dataString`).
  func expoTask(_ data: PhoneJSON, _ state: PhoneState, message: PhoneJSON) -> PhoneOutcome {
    guard state == .open else { return task(data, isText: true) }
    if let call = listened(data) { return .rings(call, Self.listenerRule) }
    guard message["title"] != nil || message["body"] != nil else { return .ignores(Self.listenerRule) }
    return PhoneOutcome(
      [.shows(title: message["title"]?.text ?? "", body: message["body"]?.text ?? "", tap: "app")], Self.handlerRule)
  }

  /// expo-notifications takes the JSON of `data.body` for the content's data (RemoteNotificationContent).
  private func listenerData(_ data: PhoneJSON) -> PhoneJSON {
    data["body"]?.text.flatMap { PhoneJSON($0.utf8) } ?? data
  }

  private func inFront(_ data: PhoneJSON, _ content: PhoneJSON) -> PhoneOutcome {
    if let call = listened(content) ?? listened(data) { return .rings(call, Self.listenerRule) }
    guard data["title"]?.text != nil || data["message"]?.text != nil else { return .ignores(Self.listenerRule) }
    return shownData(data)
  }

  /// The listener in the foreground checks only the type.
  private func listened(_ data: PhoneJSON) -> PhoneRing? {
    for candidate in [data] + ["dataString", "body"].compactMap({ data[$0]?.text.flatMap { PhoneJSON($0.utf8) } })
    where candidate["type"]?.text == "intercom_call" {
      let caller =
        candidate["fromName"].flatMap { $0.isTruthy ? $0.text : nil }
        ?? candidate["callerName"].flatMap { $0.isTruthy ? $0.text : nil } ?? "Doorman"
      let callID = candidate["callId"].flatMap { $0.isTruthy ? $0.text : nil } ?? "unknown"
      return PhoneRing(callID: callID, caller: caller)
    }
    return nil
  }

  /// In the background: the background task runs, and expo-notifications shows a title and a message if there are any.
  private func behind(_ data: PhoneJSON) -> PhoneOutcome {
    let task = task(data)
    guard let shown = shown(data) else { return task }
    return PhoneOutcome(task.reactions.filter { $0 != .ignores } + shown.reactions, "\(task.rule); \(shown.rule)")
  }

  /// The background task tries the payload's forms in the order of the source.
  private func task(_ data: PhoneJSON, isText: Bool = false) -> PhoneOutcome {
    var candidates = [data]
    if !isText {
      let texts = ["dataString", "body"].map { data[$0]?.text.flatMap { PhoneJSON($0.utf8) } }
      candidates += ([data["data"]] + texts).compactMap { $0 }
    }
    if variant == .seed {
      guard let found = candidates.first(where: { $0["type"]?.text == "intercom_call" }) else {
        return .ignores("document §3.2: only the type intercom_call")
      }
      return .rings(ring(of: found), "document §3.2, background task")
    }
    guard let found = candidates.first(where: fits) else { return .ignores(Self.taskRule) }
    return .rings(ring(of: found), Self.taskRule)
  }

  /// The schema: two strings are required, five are optional.
  private func fits(_ data: PhoneJSON) -> Bool {
    guard data["type"]?.text == "intercom_call", data["callId"]?.text != nil, data["from"]?.text != nil else {
      return false
    }
    return ["callerName", "fromName", "apartmentNumber", "channelName", "channel"].allSatisfy {
      data[$0] == nil || data[$0]?.text != nil
    }
  }

  private func ring(of data: PhoneJSON) -> PhoneRing {
    let names = ["fromName", "callerName"].compactMap { data[$0]?.text }.filter { !$0.isEmpty }
    return PhoneRing(callID: data["callId"]?.text, caller: names.first ?? "Porteiro")
  }

  private func shown(_ data: PhoneJSON) -> PhoneOutcome? {
    ["title", "message"].contains { data[$0]?.text?.isEmpty == false } ? shownData(data) : nil
  }

  private func shownData(_ data: PhoneJSON) -> PhoneOutcome {
    PhoneOutcome(
      [.shows(title: data["title"]?.text ?? "", body: data["message"]?.text ?? "", tap: "app")],
      "expo-notifications ExpoHandlingDelegate.kt handleNotification, shouldPresent; NotificationData.kt title, message"
    )
  }
}

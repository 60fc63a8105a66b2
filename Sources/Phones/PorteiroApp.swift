// Porteiro: CallKeep, PushKit on iPhones, Expo's background task on Android.

struct PorteiroApp: PhoneApp {
  let variant: PhoneVariant

  private static let voipRule = "porteiroapp apps/expo/plugins/withVoipCallKit/ios/VoipCallKitHandler.mm:68-111"
  private static let taskRule = "porteiroapp apps/expo/services/notification/backgroundTask.ts:19-80,122-155"
  private static let listenerRule =
    "porteiroapp apps/expo/app/(app)/morador/providers/IntercomNotificationListeners.tsx:6-80"
  private static let handlerRule = "porteiroapp apps/expo/services/notification/notificationHandler.ts:25-52"

  /// Every VoIP push is reported as a call, whatever it says.
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
    // With an id that is no UUID, CallKit has another one, and the app maps it by the payload (:91-96).
    return .rings(PhoneRing(callID: id, caller: caller.text ?? ""), Self.voipRule)
  }

  func presents(_ userInfo: PhoneJSON) -> PhoneOutcome {
    let data = userInfo["body"].flatMap { $0.text == nil ? $0 : nil } ?? userInfo
    if let call = listened(data) { return .rings(call, Self.listenerRule) }
    return banner(userInfo, Self.handlerRule)
  }

  func tap(_ userInfo: PhoneJSON) -> (leadsTo: String, rule: String) {
    ("app", "porteiroapp IntercomNotificationListeners.tsx:82-93: a tap is only logged")
  }

  func wakes(_ userInfo: PhoneJSON, _ state: PhoneState) -> PhoneOutcome {
    let data = userInfo["body"].flatMap { $0.text == nil ? $0 : nil } ?? userInfo
    if state == .open { return listened(data).map { .rings($0, Self.listenerRule) } ?? .ignores(Self.listenerRule) }
    return PhoneOutcome([.wakes], "iOS may wake the app; nothing rings from there reliably (CLIENTS, rules)")
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

  /// The listener in front asks for the type alone.
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

  /// Behind: the background task, and beside it what expo-notifications presents of a title and a message.
  private func behind(_ data: PhoneJSON) -> PhoneOutcome {
    let task = task(data)
    guard let shown = shown(data) else { return task }
    return PhoneOutcome(task.reactions.filter { $0 != .ignores } + shown.reactions, "\(task.rule); \(shown.rule)")
  }

  /// The background task: the shapes are tried in the order of the source.
  private func task(_ data: PhoneJSON, isText: Bool = false) -> PhoneOutcome {
    var candidates = [data]
    if !isText {
      // `dataString` is the text of `body` (expo-notifications RemoteMessageSerializer.java, toBundle of the data).
      candidates += [data["data"], data["body"]?.text.flatMap { PhoneJSON($0.utf8) }].compactMap { $0 }
    }
    if variant == .seed {
      guard let found = candidates.first(where: { $0["type"]?.text == "intercom_call" }) else {
        return .ignores("seed 000 §3.2: only the type intercom_call")
      }
      return .rings(ring(found), "seed 000 §3.2, background task")
    }
    guard let found = candidates.first(where: fits) else { return .ignores(Self.taskRule) }
    return .rings(ring(found), Self.taskRule)
  }

  /// The schema: two texts, and five that are texts or not there.
  private func fits(_ data: PhoneJSON) -> Bool {
    guard data["type"]?.text == "intercom_call", data["callId"]?.text != nil, data["from"]?.text != nil else {
      return false
    }
    return ["callerName", "fromName", "apartmentNumber", "channelName", "channel"].allSatisfy {
      data[$0] == nil || data[$0]?.text != nil
    }
  }

  private func ring(_ data: PhoneJSON) -> PhoneRing {
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

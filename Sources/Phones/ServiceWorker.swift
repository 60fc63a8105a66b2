// A browser with the service worker of docs/integrations/web.md. It reads the pushes of the dialect intercom. `Tests/integrations`
// runs the worker itself with the same pushes.

enum ServiceWorker {
  private static let rule = "docs/integrations/web.md, push-worker.js"

  /// A browser shows a notification for every push (`userVisibleOnly`). One with the same tag replaces the earlier one, which is how a
  /// call stops ringing.
  static func receives(_ push: PhoneJSON, secondsLate: Double) -> PhoneOutcome {
    let title = push["title"]?.text ?? ""
    let body = push["body"]?.text ?? ""
    guard let callID = push["callId"]?.text, !title.isEmpty else {
      return PhoneOutcome([.shows(title: "Notification", body: "", tap: "app")], "\(rule): a push that it cannot read")
    }
    switch push["type"]?.text {
    case "intercom_call":
      return .rings(PhoneRing(callID: callID, caller: push["fromName"]?.text ?? title), rule)
    case "intercom_call_end":
      return PhoneOutcome([.stops(callID: callID), .replaces(title: title, body: body, tap: "app")], rule)
    case "message", "group_message", "group_invite":
      let chat = push["chatId"]?.text ?? ""
      return PhoneOutcome([.shows(title: title, body: body, tap: chat.isEmpty ? "app" : "chat \(chat)")], rule)
    default:
      return PhoneOutcome([.shows(title: title, body: body, tap: "app")], rule)
    }
  }
}

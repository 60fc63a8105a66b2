// A browser with the service worker of docs/integrations/web.md. It reads the pushes of the dialect intercom. `Tests/integrations`
// runs the worker itself with the same pushes.

enum ServiceWorker {
  private static let rule = "docs/integrations/web.md, push-worker.js"

  /// A browser shows a notification for every push (`userVisibleOnly`). It replaces an earlier one with the same tag, which is how a call
  /// stops ringing.
  static func receives(_ push: PhoneJSON, secondsLate: Double) -> PhoneOutcome {
    let title = push["title"]?.text ?? ""
    let body = push["body"]?.text ?? ""
    guard let callID = push["callId"]?.text, !callID.isEmpty, !title.isEmpty, push["tag"]?.isTruthy == true else {
      return PhoneOutcome([.shows(title: "Notification", body: "", tap: "app")], "\(rule): a push that it cannot read")
    }
    switch push["type"]?.text {
    case "intercom_call":
      guard isInTime(push, secondsLate: secondsLate) else {
        return PhoneOutcome([.shows(title: title, body: body, tap: "call")], "\(rule): it does not ring any more")
      }
      return .rings(PhoneRing(callID: callID, caller: push["fromName"]?.text ?? title), rule)
    case "intercom_call_end":
      return PhoneOutcome([.stops(callID: callID), .replaces(title: title, body: body, tap: "app")], rule)
    default:
      return PhoneOutcome([.shows(title: title, body: body, tap: "app")], rule)
    }
  }

  /// Whether the browser's clock shows a time before `expiresAt` when the push arrives. Without `expiresAt` it never does.
  private static func isInTime(_ push: PhoneJSON, secondsLate: Double) -> Bool {
    guard let expiresAt = push["expiresAt"]?.text.flatMap({ Double($0) }) else { return false }
    guard let sentAt = push["timestamp"]?.text.flatMap({ Double($0) }) else { return true }
    return sentAt + secondsLate * 1000 < expiresAt
  }
}

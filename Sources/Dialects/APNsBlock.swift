// `apns` of an FCM message: what an iPhone with only an FCM token shows.

internal import Runtime

/// The block of one kind. Without it, an iPhone shows a data message only while the app is in the foreground; see docs/dialects.md.
struct APNsBlock {
  let kind: PushTemplateKind

  /// The block for a template without `apns`.
  var standard: String {
    let aps =
      switch kind {
      case .cancel: #"{"content-available": 1}"#
      case .invite: Self.alert(text: "incomingCallText")
      case .missedCall: Self.alert(text: "missedCallText", category: "missed_call", thread: "${from?}")
      case .message: Self.alert(text: "messageText|newMessageText", category: "message", thread: "${chatId|from}")
      case .groupMessage:
        Self.alert(text: "messageText|newGroupMessageText", category: "group_message", thread: "${chatId|from}")
      case .groupInvite: Self.alert(text: "groupInvitationText", category: "group_invite", thread: "${chatId|from}")
      }
    return #"{"headers": {\#(Self.headers(isAlert: kind != .cancel))}, "payload": {"aps": \#(aps)}}"#
  }

  /// The template's block, completed with the standard headers.
  func source(_ block: JSONScanner.Value, _ json: JSONScanner) -> Result<String, TemplateError.Reason> {
    guard block.kind == .object else { return .failure(.badPushValue("an object with payload (and headers), or none")) }
    guard let payload = json.member("payload", of: block), let aps = json.member("aps", of: payload),
      aps.kind == .object
    else { return .failure(.apnsBlock("must have payload with aps, which is what iOS reads")) }
    let isAlert = TemplateRules.hasAlert(payload, json)
    guard isAlert || TemplateRules.isForBackground(payload, json) else {
      return .failure(
        .apnsBlock(
          "aps must have an alert, or content-available: 1 and no sound or badge; otherwise an iPhone ignores the push"
        ))
    }
    var headers: [String] = []
    var names: Set<String> = []
    if let own = json.member("headers", of: block) {
      guard own.kind == .object else { return .failure(.apnsBlock("headers must be an object")) }
      for member in json.members(of: own) {
        let name = String(decoding: json.key(member), as: UTF8.self)
        guard let value = json.text(member.value) else {
          return .failure(.apnsBlock("headers.\(name) must be a string: put it in quotes"))
        }
        if let fault = Self.fault(name, value, isAlert: isAlert) { return .failure(.apnsBlock(fault)) }
        names.insert(name)
        headers.append(#""\#(name)": \#(String(decoding: json.raw(member.value), as: UTF8.self))"#)
      }
    }
    headers += Self.standardHeaders(isAlert: isAlert).filter { !names.contains($0.name) }
      .map { #""\#($0.name)": "\#($0.value)""# }
    var members = [#""headers": {\#(headers.joined(separator: ", "))}"#]
    for member in json.members(of: block) where !json.isKey(member, "headers") {
      let name = String(decoding: json.bytes[member.key], as: UTF8.self)
      guard ["payload", "fcm_options", "live_activity_token"].contains(name) else {
        return .failure(.unknownPushMember(name, among: ["headers", "payload", "fcm_options", "live_activity_token"]))
      }
      members.append(#""\#(name)": \#(String(decoding: json.raw(member.value), as: UTF8.self))"#)
    }
    return .success("{\(members.joined(separator: ", "))}")
  }

  /// The fault of a header that Apple would refuse or ignore; nil for none.
  private static func fault(_ name: String, _ value: String, isAlert: Bool) -> String? {
    switch name {
    case "apns-push-type" where value != (isAlert ? "alert" : "background"):
      "headers.apns-push-type must be alert with an alert in aps, and background without"
    case "apns-priority" where isAlert && !["10", "5", "1"].contains(value):
      "headers.apns-priority must be 10, 5 or 1"
    case "apns-priority" where !isAlert && !["5", "1"].contains(value):
      "headers.apns-priority must be 5 or 1 without an alert: Apple refuses 10 for the push type background"
    case "apns-push-type", "apns-priority", "apns-expiration", "apns-collapse-id", "apns-topic": nil
    default:
      "headers: no such header: \(name)" + Suggestion.text(for: name, among: headerNames)
        + "; there are " + headerNames.joined(separator: ", ")
    }
  }

  private static let headerNames = [
    "apns-push-type", "apns-priority", "apns-expiration", "apns-collapse-id", "apns-topic",
  ]

  private static func standardHeaders(isAlert: Bool) -> [(name: String, value: String)] {
    let headers = [
      ("apns-push-type", isAlert ? "alert" : "background"), ("apns-priority", isAlert ? "10" : "5"),
      ("apns-expiration", "${expiresAtSeconds}"),
    ]
    return isAlert ? headers + [("apns-collapse-id", "${collapseId}")] : headers
  }

  private static func headers(isAlert: Bool) -> String {
    standardHeaders(isAlert: isAlert).map { #""\#($0.name)": "\#($0.value)""# }.joined(separator: ", ")
  }

  private static func alert(text: String, category: String? = nil, thread: String? = nil) -> String {
    DialectFragments.alert(
      title: "${fromName|from}", text: "${\(text)}", category: category, thread: thread,
      extra: kind(of: text))
  }

  /// The badge. Only messages have an unread count.
  private static func kind(of text: String) -> String? {
    text.hasPrefix("message") || text.hasPrefix("group") ? DialectFragments.badge : nil
  }
}

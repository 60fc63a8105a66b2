// Rules for a template as a whole: what a provider would refuse, and what would break a rule for calls.

internal import Providers
internal import Runtime

/// The rules for templates besides those for keys and placeholders.
enum TemplateRules {
  /// The members of an Expo message that the gateway writes (`ExpoRequestWriter`): a second one could redirect a push.
  static let expoReserved = ["to", "priority", "expiration", "ttl", "collapseId"]

  /// The members that make Expo send Android a notification, which the system shows by itself: the app's task does not run
  /// (expo/expo, packages/expo-notifications; docs/dialects.md).
  static let expoVisible = ["title", "subtitle", "body", "icon", "channelId"]

  /// The fault of a template's outermost object, with the member's name.
  static func faults(
    in object: JSONScanner.Value, of json: JSONScanner, for provider: ProviderKind, _ kind: PushTemplateKind
  ) -> [(member: String?, reason: TemplateError.Reason)] {
    switch provider {
    case .apns where kind == .cancel: isForVoIP(object, json) ? [] : [(nil, .cancelOverAPNs)]
    case .expo:
      json.members(of: object).compactMap { member in
        let name = String(decoding: json.key(member), as: UTF8.self)
        if name == "$payload" || name == "$metadata" { return (name, .payloadInMessage) }
        return expoReserved.contains(name) ? (name, .setByGateway(name)) : nil
      }
    default: []
    }
  }

  /// Whether `$push` sets the type `voip`.
  private static func isForVoIP(_ object: JSONScanner.Value, _ json: JSONScanner) -> Bool {
    json.member("$push", of: object).flatMap { json.member("type", of: $0) }.flatMap(json.text) == "voip"
  }

  /// Whether a rendered template can never be an empty object, to which nothing could be appended.
  static func isNeverEmpty(_ template: PushTemplate) -> Bool {
    template.instructions.contains { instruction in
      guard case .literal(let range) = instruction else { return false }
      return template.literals[range].contains(UInt8(ascii: "\""))
    }
  }

  /// Whether it has an alert. Apple accepts an alert push without one and shows nothing.
  static func hasAlert(_ object: JSONScanner.Value, _ json: JSONScanner) -> Bool {
    guard let aps = json.member("aps", of: object), let alert = json.member("alert", of: aps) else { return false }
    return alert.kind == .object || alert.kind == .string
  }

  /// Whether iOS treats it as a push that only wakes the app: `content-available` without alert, sound and badge.
  static func isForBackground(_ object: JSONScanner.Value, _ json: JSONScanner) -> Bool {
    guard let aps = json.member("aps", of: object) else { return false }
    return json.member("content-available", of: aps).flatMap(json.integer) == 1
      && json.member("alert", of: aps) == nil && json.member("sound", of: aps) == nil
      && json.member("badge", of: aps) == nil
  }
}

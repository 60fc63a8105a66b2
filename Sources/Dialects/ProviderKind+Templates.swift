// What the templates of each provider may contain, and the defaults of how their pushes are sent. Rules about a template as a whole
// are in `TemplateRules` and `PushDirective.check`; most providers have none.

internal import Providers
internal import PushModel

extension ProviderKind {
  /// Maximum number of bytes of a rendered body (docs/protocols.md). The key and value texts of an FCM `data` object are counted
  /// with their quotes, the Expo message with everything the dialect puts into it. Over web push, a record of 4,096 bytes contains
  /// 86 bytes of header, a delimiter, and a tag of 16 bytes.
  func bodyLimit(for kind: PushTemplateKind) -> Int {
    switch self {
    case .apns: kind == .invite ? 5120 : 4096
    case .fcm, .expo: 4096
    case .webpush: 3993
    }
  }

  /// The members that `$push` may have in a template of this kind.
  func pushMembers(for kind: PushTemplateKind) -> [String] {
    switch self {
    case .apns: ["type", "priority", "expiration", "collapse"]
    case .fcm:
      ["priority", "ttl", "collapse", "apns", "notification", "android", "headless"]
        + (kind == .missedCall ? ["after_cancel"] : [])
    case .expo: ["priority", "ttl", "collapse", "headless"]
    case .webpush: ["priority", "ttl", "collapse"]
    }
  }

  /// The place of a template's outermost object.
  var templatePlace: TemplateCompiler.Place {
    switch self {
    case .apns: .message(reserved: .apns)
    case .fcm: .fcmData
    case .expo, .webpush: .message(reserved: .none)
    }
  }

  /// The default: a later push replaces one that it makes useless. Over APNs and on iPhones, a repetition replaces every visible
  /// push. On Android only an invite and its cancel are replaced: Google keeps four collapse keys for each device and rations such
  /// messages, and a missed call must never replace a cancel that has not arrived. A push service keeps one push for each topic, so
  /// the same holds for browsers: an invite that waits is replaced by its cancel.
  func collapse(_ kind: PushTemplateKind, on platform: DevicePlatform) -> MessageTemplate.Collapse {
    switch self {
    case .apns: kind == .invite ? .none : .callID  // VoIP pushes are not stored
    case .fcm, .webpush: kind == .invite || kind == .cancel ? .callID : .none
    case .expo: kind == .invite || kind == .cancel || platform == .ios ? .callID : .none
    }
  }
}

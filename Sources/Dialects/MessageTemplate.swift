// Everything a template says of a push: its body, how it travels, and over FCM what stands beside the data.

internal import Providers
internal import PushModel
internal import Runtime

/// A compiled template with its `$push`.
struct MessageTemplate: Equatable, Sendable {
  /// Which pushes take the place of one another.
  enum Collapse: Equatable, Sendable {
    case callID
    case none
  }

  var body = PushTemplate()
  var manner: PushManner
  var collapse: Collapse
  /// FCM: what iPhones get; nil for none.
  var apns: PushTemplate?
  /// FCM: what both systems show by themselves.
  var notification: PushTemplate?
  /// FCM: members of `android` beside the gateway's.
  var android: PushTemplate?
  /// A missed call: not sent to a phone that is told by a cancel of the same call.
  var isSaidByCancel = false

  init(_ provider: ProviderKind, _ kind: PushTemplateKind, on platform: DevicePlatform) {
    manner = .standard(for: kind.pushKind)
    collapse = Self.collapse(provider, kind, on: platform)
  }

  /// - Returns: the template, and what is wrong with it: it can only be used if that is nothing.
  static func compile(
    _ object: JSONScanner.Value, of json: JSONScanner, for provider: ProviderKind, _ kind: PushTemplateKind,
    on platform: DevicePlatform, at path: String
  ) -> (template: MessageTemplate, faults: [TemplateError]) {
    var template = MessageTemplate(provider, kind, on: platform)
    let (body, bodyFaults) = TemplateCompiler.compile(object, of: json, for: provider, kind, at: path)
    template.body = body
    var directive = PushDirective(json: json, provider: provider, kind: kind, platform: platform, path: path)
    directive.read(object, into: &template)
    return (template, bodyFaults + directive.faults)
  }

  /// Where nobody chose: what a later push makes useless is replaced by it. Over APNs and on iPhones anything is shown once
  /// and replaced by its repetition; on Android only an invite and its cancel, for Google keeps four keys a device and rations
  /// such messages, and a missed call must never take the place of a cancel that has not arrived.
  private static func collapse(
    _ provider: ProviderKind, _ kind: PushTemplateKind, on platform: DevicePlatform
  ) -> Collapse {
    switch provider {
    case .apns: kind == .invite ? .none : .callID  // nothing stores a VoIP push
    case .fcm: kind == .invite || kind == .cancel ? .callID : .none
    case .expo: kind == .invite || kind == .cancel || platform == .ios ? .callID : .none
    }
  }
}

// All that a template defines: the body, how the push is sent, and for FCM the members beside the data.

internal import Providers
internal import PushModel
internal import Runtime

/// A compiled template with its `$push`.
struct MessageTemplate: Equatable, Sendable {
  /// Which pushes replace one another.
  enum Collapse: Equatable, Sendable {
    case callID
    case none
  }

  var body = PushTemplate()
  var manner: PushManner
  var collapse: Collapse
  /// FCM: what iPhones get; nil for none.
  var apns: PushTemplate?
  /// FCM: what both systems show without the app.
  var notification: PushTemplate?
  /// FCM: members of `android` besides the gateway's.
  var android: PushTemplate?
  /// Missed call: not sent to a phone that gets a cancel of the same call.
  var isSaidByCancel = false

  init(_ provider: ProviderKind, _ kind: PushTemplateKind, on platform: DevicePlatform) {
    manner = .standard(for: kind.pushKind)
    collapse = provider.collapse(kind, on: platform)
  }

  /// - Returns: the template and its faults. It can be used only if there are none.
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
}

// The message formats of one app's phones: a template for each provider and kind, given as data.

public import Providers
internal import PushModel
internal import Runtime

/// The compiled templates of one app.
///
/// A dialect is JSON: `{"apns": {"invite": {…}}, "fcm": {"invite": {…}}, "expo": {"invite": {…}, "invite.ios": {…}}}`. A kind with
/// the suffix `.ios` or `.android` takes precedence on devices of that platform. An APNs template is the whole
/// payload, an FCM template the `data` object, an Expo template the message without what the gateway adds to it, a web push template
/// the object that the browser's service worker gets; `$push` in any of them sets how the push is sent, and for FCM the members
/// beside `data`.
/// docs/dialects.md says how to write one.
public struct Dialect: Equatable, Sendable {
  /// Its name in the configuration of apps.
  public let name: String
  /// Whether phones ring twice for a push that arrives twice, because they do not compare call ids. Then pushes are hedged only if
  /// the configuration asks for it.
  public let ringsTwice: Bool
  /// Whether an iPhone's app can answer only a call whose id is a UUID in small letters.
  public var needsUUID: Bool { ShippedDialects.needUUIDs.contains(name) }
  private var templates: [Section: MessageTemplate] = [:]

  private struct Section: Hashable {
    var provider: ProviderKind
    var kind: PushTemplateKind
    /// `.unknown` for the template of all platforms without their own.
    var platform: DevicePlatform
  }

  /// Compiles a dialect.
  /// - Parameters:
  ///   - name: its name in messages.
  ///   - source: the JSON.
  ///   - ringsTwice: whether phones ring twice for a push that arrives twice.
  /// - Throws: the first fault.
  public init(name: String, json source: String, ringsTwice: Bool = false) throws(TemplateError) {
    self.name = name
    self.ringsTwice = ringsTwice
    if let fault = lay(over: source).first { throw fault }
  }

  // MARK: - Compiling

  /// Compiles templates. Each replaces the present one for its provider, kind and platform. One without a platform is for all devices:
  /// it also replaces those for platforms, except those in the same source.
  /// - Parameter source: JSON of the same shape.
  /// - Returns: all faults, such as unknown placeholders, FCM values that are not strings, and reserved keys. A template with a fault is
  ///   not used.
  public mutating func lay(over source: String) -> [TemplateError] {
    let json: JSONScanner
    do throws(JSONError) {
      json = try JSONScanner(Array(source.utf8))
    } catch {
      return [TemplateError(path: "", reason: .notJSON(error.description))]
    }
    guard json.root.kind == .object else { return [TemplateError(path: "", reason: .notAnObject)] }
    var faults: [TemplateError] = []
    for member in json.members(of: json.root) {
      let word = String(decoding: json.key(member), as: UTF8.self)
      if let provider = ProviderKind(rawValue: word) {
        faults += lay(member.value, of: json, over: provider)
      } else {
        faults.append(TemplateError(path: "", reason: .unknownProvider(word)))
      }
    }
    return faults
  }

  private mutating func lay(
    _ object: JSONScanner.Value, of json: JSONScanner, over provider: ProviderKind
  ) -> [TemplateError] {
    guard object.kind == .object else { return [TemplateError(path: provider.rawValue, reason: .notAnObject)] }
    var faults: [TemplateError] = []
    var seen: Set<Section> = []
    var sound: [(Section, MessageTemplate)] = []
    for member in json.members(of: object) {
      let word = String(decoding: json.key(member), as: UTF8.self)
      let path = "\(provider.rawValue).\(word)"
      guard let section = Self.section(word, provider) else {
        faults.append(TemplateError(path: provider.rawValue, reason: .unknownKind(word)))
        continue
      }
      guard seen.insert(section).inserted else {
        faults.append(TemplateError(path: path, reason: .repeatedKey(word)))
        continue
      }
      let (template, itsFaults) = MessageTemplate.compile(
        member.value, of: json, for: provider, section.kind, on: section.platform, at: path)
      if itsFaults.isEmpty { sound.append((section, template)) }
      faults += itsFaults
    }
    for (section, _) in sound where section.platform == .unknown {
      for platform in [DevicePlatform.ios, .android] {
        templates[Section(provider: provider, kind: section.kind, platform: platform)] = nil
      }
    }
    for (section, template) in sound { templates[section] = template }
    return faults
  }

  /// The suffixes of a kind.
  private static let platforms: [String: DevicePlatform] = ["ios": .ios, "android": .android]

  private static func section(_ word: String, _ provider: ProviderKind) -> Section? {
    let parts = word.split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
    guard let kind = PushTemplateKind(rawValue: String(parts[0])) else { return nil }
    guard parts.count == 2 else { return Section(provider: provider, kind: kind, platform: .unknown) }
    guard let platform = platforms[String(parts[1])] else { return nil }
    return Section(provider: provider, kind: kind, platform: platform)
  }

  // MARK: - Templates

  /// Whether calls can be sent through this provider at all.
  public func speaks(_ provider: ProviderKind) -> Bool {
    templates.keys.contains { $0.provider == provider && $0.kind == .invite }
  }

  /// Whether a cancel is sent as a VoIP push. Phones that do not recognize it as a cancel would ring.
  public var cancelsOverVoIP: Bool { templates.keys.contains { $0.provider == .apns && $0.kind == .cancel } }

  /// Whether any template shows the text of a message.
  public var showsMessageText: Bool { uses(.messageText) }

  /// Whether any template sends the app's channel for missed calls.
  public var hasMissedCallChannel: Bool { uses(.missedCallChannel) }

  private func uses(_ name: TemplateName) -> Bool {
    templates.values.contains { template in
      [template.body, template.apns, template.notification, template.android]
        .contains { $0?.names.contains(name) == true }
    }
  }

  /// The template for a device, or nil when the dialect has none.
  func template(_ provider: ProviderKind, _ kind: PushTemplateKind, on platform: DevicePlatform) -> MessageTemplate? {
    templates[Section(provider: provider, kind: kind, platform: platform)]
      ?? templates[Section(provider: provider, kind: kind, platform: .unknown)]
  }
}

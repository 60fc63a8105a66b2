// How one app's phones want to be spoken to: a template a provider and kind, given as data.

internal import Runtime

/// The compiled templates of one app.
///
/// A dialect is JSON: `{"apns": {"invite": {…}}, "fcm": {"invite": {…}}, "expo": {"invite": {…}, "invite.ios": {…}}}`. A kind with
/// `.ios` or `.android` behind goes before the plain one for devices known to be that. An APNs template is the whole
/// payload, an FCM template the `data` object, an Expo template the message without `to`, `ttl`, `expiration` and `priority`.
struct Dialect: Sendable {
  /// The name an app's configuration chooses it by.
  let name: String
  private var templates: [Section: PushTemplate] = [:]

  private struct Section: Hashable {
    var provider: ProviderKind
    var kind: PushTemplateKind
    var platform: DevicePlatform?
  }

  /// Compiles a dialect.
  /// - Throws: everything in it that could never be sent: unknown placeholders, FCM values that are no strings, reserved FCM keys.
  init(name: String, json source: String) throws(TemplateError) {
    self.name = name
    let json: JSONScanner
    do throws(JSONError) {
      json = try JSONScanner(Array(source.utf8))
    } catch {
      throw TemplateError(path: "", reason: .notJSON(error.description))
    }
    guard json.root.kind == .object else { throw TemplateError(path: "", reason: .notAnObject) }
    for member in json.members(of: json.root) {
      let word = String(decoding: json.key(member), as: UTF8.self)
      guard let provider = ProviderKind(rawValue: word) else {
        throw TemplateError(path: "", reason: .unknownSection(word))
      }
      guard member.value.kind == .object else { throw TemplateError(path: word, reason: .notAnObject) }
      try compile(member.value, of: json, for: provider)
    }
  }

  private mutating func compile(
    _ object: JSONScanner.Value, of json: JSONScanner, for provider: ProviderKind
  ) throws(TemplateError) {
    for member in json.members(of: object) {
      let word = String(decoding: json.key(member), as: UTF8.self)
      guard let section = Self.section(word, provider) else {
        throw TemplateError(path: provider.rawValue, reason: .unknownSection(word))
      }
      let path = "\(provider.rawValue).\(word)"
      guard templates[section] == nil else { throw TemplateError(path: path, reason: .repeatedKey(word)) }
      templates[section] = try TemplateCompiler.compile(member.value, of: json, for: provider, at: path)
    }
  }

  private static func section(_ word: String, _ provider: ProviderKind) -> Section? {
    let parts = word.split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
    guard let kind = PushTemplateKind(rawValue: String(parts[0])) else { return nil }
    guard parts.count == 2 else { return Section(provider: provider, kind: kind, platform: nil) }
    guard let platform = DevicePlatform(rawValue: String(parts[1])) else { return nil }
    return Section(provider: provider, kind: kind, platform: platform)
  }

  /// Whether calls can be sent through this provider at all.
  func speaks(_ provider: ProviderKind) -> Bool {
    templates.keys.contains { $0.provider == provider && $0.kind == .invite }
  }

  /// The template for a device, or nil when the dialect has none.
  func template(_ provider: ProviderKind, _ kind: PushTemplateKind, on platform: DevicePlatform?) -> PushTemplate? {
    if let platform, let own = templates[Section(provider: provider, kind: kind, platform: platform)] { return own }
    return templates[Section(provider: provider, kind: kind, platform: nil)]
  }
}

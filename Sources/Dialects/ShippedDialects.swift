// The dialects that come with the gateway, by their names in the configuration.

/// The built-in dialects.
public enum ShippedDialects {
  private static let sources: [(name: String, ringsTwice: Bool, json: String)] = [
    ("intercom", intercomRingsTwice, intercom), ("twilio", twilioRingsTwice, twilio),
    ("enclosure", enclosureRingsTwice, enclosure), ("telnyx", telnyxRingsTwice, telnyx),
    ("commeazy", commeazyRingsTwice, commeazy),
  ]

  /// Those whose iPhone app gives CallKit the call's id and looks for it in CallKit's form. The others make a UUID of it.
  static let needUUIDs: Set<String> = ["intercom", "telnyx"]

  /// All their names, the default first.
  public static var names: [String] { sources.map(\.name) }

  /// The dialect of this name, or nil if there is none.
  /// - Throws: a fault in a template we ship, which a test finds before any release.
  public static func named(_ name: String) throws(TemplateError) -> Dialect? {
    guard let source = sources.first(where: { $0.name == name }) else { return nil }
    return try Dialect(name: name, json: source.json, ringsTwice: source.ringsTwice)
  }
}

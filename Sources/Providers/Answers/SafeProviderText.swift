// What of a provider's answer may be kept: words go into the history, into logs and into metrics' labels, so nothing
// goes there that is not a word.

internal import Runtime

/// Words of an answer, or nil for what is none: too long, control characters, not ASCII, a whole sentence.
enum SafeProviderText {
  /// A reason or error code: at most 48 letters, digits and underscores, which is less than any token has.
  static func reason(_ value: JSONScanner.Value, in json: JSONScanner) -> String? {
    guard let text = json.string(value), 1...48 ~= text.count else { return nil }
    let isPlain = text.allSatisfy {
      UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 | 0x20 || UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0
        || $0 == UInt8(ascii: "_")
    }
    return isPlain ? String(decoding: text, as: UTF8.self) : nil
  }

  /// The name a provider gave to a push: at most 256 characters of printable ASCII.
  static func messageID(_ text: some Collection<UInt8>) -> String? {
    guard 1...256 ~= text.count, text.allSatisfy({ 0x20...0x7E ~= $0 }) else { return nil }
    return String(decoding: text, as: UTF8.self)
  }
}

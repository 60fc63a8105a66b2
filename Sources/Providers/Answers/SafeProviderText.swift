// Checks the texts of a provider's answer that may be stored. They go into the history, logs and labels of metrics, so only short
// plain words are accepted.

internal import Runtime

/// Returns texts of an answer, or nil if a text is too long or has forbidden characters.
enum SafeProviderText {
  /// A reason or error code: at most 48 letters, digits and underscores. Any token is longer than that.
  static func reason(_ value: JSONScanner.Value, in json: JSONScanner) -> String? {
    guard let text = json.string(value), 1...48 ~= text.count else { return nil }
    let isPlain = text.allSatisfy {
      UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 | 0x20 || UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0
        || $0 == UInt8(ascii: "_")
    }
    return isPlain ? String(decoding: text, as: UTF8.self) : nil
  }

  /// The ID that a provider gave to a push: at most 256 characters of printable ASCII.
  static func messageID(_ text: some Collection<UInt8>) -> String? {
    guard 1...256 ~= text.count, text.allSatisfy({ 0x20...0x7E ~= $0 }) else { return nil }
    return String(decoding: text, as: UTF8.self)
  }
}

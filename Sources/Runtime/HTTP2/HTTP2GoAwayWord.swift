// The part of GOAWAY's debug data that may be logged.

enum HTTP2GoAwayWord {
  /// The part of debug data that may be logged: a word such as FCM's `max_age`, or the reason in Apple's JSON. Other debug data
  /// may quote a request, and with it a device token.
  static func word(_ data: [UInt8]) -> String {
    guard !data.isEmpty else { return "" }
    let json = try? JSONScanner(data)
    let reason = json.flatMap { json in json.member("reason").flatMap(json.text) }
    let text = reason ?? String(decoding: data, as: UTF8.self)
    let isWord = text.utf8.count <= 40 && text.utf8.allSatisfy { 0x61...0x7A ~= $0 | 0x20 || $0 == UInt8(ascii: "_") }
    return isWord ? ": \(text)" : ": (unreadable)"
  }
}

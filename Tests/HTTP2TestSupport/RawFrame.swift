// HTTP/2 frames as bytes, valid or invalid (RFC 9113 §4.1, RFC 7541).

/// Makes frames without checking their content.
public enum RawFrame {
  public static let data: UInt8 = 0
  public static let headers: UInt8 = 1
  public static let priority: UInt8 = 2
  public static let resetStream: UInt8 = 3
  public static let settings: UInt8 = 4
  public static let pushPromise: UInt8 = 5
  public static let ping: UInt8 = 6
  public static let goAway: UInt8 = 7
  public static let windowUpdate: UInt8 = 8
  public static let continuation: UInt8 = 9

  public static let endsStream: UInt8 = 1
  /// The flag of SETTINGS and PING.
  public static let ack: UInt8 = 1
  public static let endsHeaders: UInt8 = 4
  public static let padded: UInt8 = 8

  /// The nine bytes before a payload; the length may be wrong.
  public static func head(length: Int, _ type: UInt8, flags: UInt8 = 0, stream: UInt32 = 0) -> [UInt8] {
    [
      UInt8(truncatingIfNeeded: length >> 16), UInt8(truncatingIfNeeded: length >> 8),
      UInt8(truncatingIfNeeded: length),
    ]
      + [type, flags] + bytes(stream)
  }

  public static func frame(_ type: UInt8, flags: UInt8 = 0, stream: UInt32 = 0, _ payload: [UInt8] = []) -> [UInt8] {
    head(length: payload.count, type, flags: flags, stream: stream) + payload
  }

  /// - Parameter values: identifier and value of each setting.
  public static func settings(_ values: [(UInt16, UInt32)] = []) -> [UInt8] {
    frame(settings, values.flatMap { [UInt8($0.0 >> 8), UInt8($0.0 & 0xFF)] + bytes($0.1) })
  }

  public static func goAway(last: UInt32, code: UInt32 = 0, debug: [UInt8] = []) -> [UInt8] {
    frame(goAway, bytes(last) + bytes(code) + debug)
  }

  public static func resetStream(_ stream: UInt32, code: UInt32) -> [UInt8] {
    frame(resetStream, stream: stream, bytes(code))
  }

  public static func windowUpdate(_ stream: UInt32, by increment: UInt32) -> [UInt8] {
    frame(windowUpdate, stream: stream, bytes(increment))
  }

  /// A HEADERS frame with these fields, each a literal without indexing.
  public static func headers(
    _ stream: UInt32, _ fields: [(String, String)], ends: Bool, endsHeaders: Bool = true
  ) -> [UInt8] {
    let flags = (ends ? endsStream : 0) | (endsHeaders ? Self.endsHeaders : 0)
    return frame(headers, flags: flags, stream: stream, fields.flatMap { literal($0.0, $0.1) })
  }

  public static func data(_ stream: UInt32, _ body: [UInt8], ends: Bool) -> [UInt8] {
    frame(data, flags: ends ? endsStream : 0, stream: stream, body)
  }

  /// A field as HPACK's literal without indexing (RFC 7541 §6.2.2), without Huffman codes.
  public static func literal(_ name: String, _ value: String) -> [UInt8] { [0] + string(name) + string(value) }

  private static func string(_ text: String) -> [UInt8] {
    let text = Array(text.utf8)
    guard text.count >= 127 else { return [UInt8(text.count)] + text }
    var (length, rest): ([UInt8], Int) = ([127], text.count - 127)
    while rest >= 128 {
      length.append(UInt8(rest & 127) | 128)
      rest >>= 7
    }
    return length + [UInt8(rest)] + text
  }

  public static func bytes(_ number: UInt32) -> [UInt8] {
    [UInt8(number >> 24), UInt8(number >> 16 & 0xFF), UInt8(number >> 8 & 0xFF), UInt8(number & 0xFF)]
  }
}

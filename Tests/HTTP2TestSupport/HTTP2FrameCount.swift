// Counts the frames of a client by type, from their bytes (RFC 9113 §4.1).

/// The frames that a client has sent since its connection was opened.
public struct HTTP2FrameCount {
  private static let prefaceLength = 24
  private static let headLength = 9

  private var byType: [UInt8: Int] = [:]
  private var head: [UInt8] = []
  /// The number of bytes before the next frame header: of the preface, then of payloads.
  private var toSkip = prefaceLength

  /// PING frames without ACK.
  public private(set) var pings = 0
  public var headers: Int { byType[1, default: 0] }

  mutating func take(_ bytes: UnsafeRawBufferPointer) {
    var rest = bytes[...]
    while !rest.isEmpty {
      if toSkip > 0 {
        let count = min(toSkip, rest.count)
        rest = rest.dropFirst(count)
        toSkip -= count
        continue
      }
      let count = min(Self.headLength - head.count, rest.count)
      head += rest.prefix(count)
      rest = rest.dropFirst(count)
      guard head.count == Self.headLength else { return }
      toSkip = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
      byType[head[3], default: 0] += 1
      if head[3] == 6, head[4] & 1 == 0 { pings += 1 }
      head.removeAll()
    }
  }
}

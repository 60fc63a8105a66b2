// Frames as bytes (RFC 9113 §4.1, §6), which our client writes and reads itself.

enum HTTP2FrameType {
  static let data: UInt8 = 0
  static let headers: UInt8 = 1
  static let priority: UInt8 = 2
  static let reset: UInt8 = 3
  static let settings: UInt8 = 4
  static let pushPromise: UInt8 = 5
  static let ping: UInt8 = 6
  static let goAway: UInt8 = 7
  static let windowUpdate: UInt8 = 8
  static let continuation: UInt8 = 9
}

enum HTTP2FrameFlags {
  static let acknowledges: UInt8 = 0x1
  static let endsStream: UInt8 = 0x1
  static let endsHeaders: UInt8 = 0x4
  static let isPadded: UInt8 = 0x8
  static let hasPriority: UInt8 = 0x20
}

enum HTTP2Setting {
  static let headerTableSize: UInt16 = 1
  static let enablePush: UInt16 = 2
  static let streamsMax: UInt16 = 3
  static let streamWindow: UInt16 = 4
  static let frameSize: UInt16 = 5
  static let headerListSize: UInt16 = 6
}

/// The nine bytes before each payload.
struct HTTP2FrameHead {
  static let byteCount = 9
  /// The frame size that every peer accepts, and the maximum that a peer may send us.
  static let payloadBytesMax = 16_384

  var length: Int
  var type: UInt8
  var flags: UInt8
  var stream: Int32

  func has(_ flag: UInt8) -> Bool { flags & flag != 0 }

  /// Reads nine bytes.
  init(_ bytes: UnsafeRawBufferPointer) {
    let word = unsafe UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self))
    length = Int(word >> 40)
    type = UInt8(truncatingIfNeeded: word >> 32)
    flags = UInt8(truncatingIfNeeded: word >> 24)
    let low = unsafe bytes[8]
    stream = Int32(truncatingIfNeeded: (word & 0x7F_FFFF) << 8) | Int32(low)
  }
}

extension [UInt8] {
  /// Appends the head of a frame whose payload follows.
  mutating func appendFrameHead(length: Int, _ type: UInt8, flags: UInt8 = 0, stream: Int32 = 0) {
    let stream = UInt64(UInt32(bitPattern: stream))
    let word = UInt64(length) << 40 | UInt64(type) << 32 | UInt64(flags) << 24 | stream >> 8
    appendBigEndian(word)
    append(UInt8(truncatingIfNeeded: stream))
  }

  /// Writes the length into the head of a frame that begins at `place`.
  mutating func setFrameLength(_ length: Int, at place: Int) {
    self[place] = UInt8(truncatingIfNeeded: length >> 16)
    self[place + 1] = UInt8(truncatingIfNeeded: length >> 8)
    self[place + 2] = UInt8(truncatingIfNeeded: length)
  }

  mutating func appendReset(_ stream: Int32, _ code: HTTP2ErrorCode) {
    appendFrameHead(length: 4, HTTP2FrameType.reset, stream: stream)
    appendBigEndian(code.rawValue)
  }

  mutating func appendWindowUpdate(_ stream: Int32, _ increment: Int) {
    appendFrameHead(length: 4, HTTP2FrameType.windowUpdate, stream: stream)
    appendBigEndian(UInt32(increment))
  }

  mutating func appendGoAway(_ code: HTTP2ErrorCode) {
    appendFrameHead(length: 8, HTTP2FrameType.goAway)
    appendBigEndian(UInt32(0))  // the peer opens no streams, because there is no server push
    appendBigEndian(code.rawValue)
  }

  mutating func appendPing(_ number: UInt64, acknowledges: Bool) {
    appendFrameHead(length: 8, HTTP2FrameType.ping, flags: acknowledges ? HTTP2FrameFlags.acknowledges : 0)
    unsafe Swift.withUnsafeBytes(of: number) { unsafe append(contentsOf: $0) }
  }

  mutating func appendSettings(_ entries: [(id: UInt16, value: UInt32)]) {
    appendFrameHead(length: 6 * entries.count, HTTP2FrameType.settings)
    for entry in entries {
      appendBigEndian(entry.id)
      appendBigEndian(entry.value)
    }
  }
}

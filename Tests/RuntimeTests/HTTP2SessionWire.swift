// A client's session whose server is a test, frame by frame.

@testable import Runtime

final class HTTP2SessionWire {
  var session: HTTP2ClientSession
  var events: [HTTP2Event] = []

  /// - Parameters:
  ///   - settings: what the server's first SETTINGS say.
  ///   - greets: whether the server has sent them.
  init(
    _ settings: [(UInt16, UInt32)] = [], client: HTTP2SessionSettings = HTTP2SessionSettings(), greets: Bool = true
  ) throws {
    session = HTTP2ClientSession(settings: client)
    guard greets else { return }
    var frame: [UInt8] = []
    frame.appendSettings(settings.map { (id: $0.0, value: $0.1) })
    try hear(frame)
    _ = drainOutput()
    events = []
  }

  func hear(_ bytes: [UInt8]) throws {
    defer {
      var batch: [HTTP2Event] = []
      session.drainEvents(into: &batch)
      events += batch
    }
    try bytes.withUnsafeBytes { try session.receive($0) }
  }

  func drainOutput() -> [UInt8] {
    var bytes: [UInt8] = []
    session.openWaiting()
    session.drainOutput(into: &bytes)
    return bytes
  }

  /// The frames that the session sends now, each as "type flags stream length".
  func takeFrames() -> [String] {
    var rest = drainOutput()[...]
    var frames: [String] = []
    while !rest.isEmpty {
      let head = rest.withUnsafeBytes { HTTP2FrameHead($0) }
      frames.append("\(head.type) \(head.flags) \(head.stream) \(head.length)")
      rest = rest.dropFirst(HTTP2FrameHead.byteCount + head.length)
    }
    return frames
  }

  /// Receives the same frame until the connection is closed, at most `most` times, and reads everything that the
  /// session sends. Returns the number of frames.
  func flood(_ frame: [UInt8], most: Int = 100_000) -> Int {
    for count in 0..<most {
      do { try hear(frame) } catch { return count }
      _ = drainOutput()
    }
    return most
  }

  private static let shared: HTTP2SharedFields = [":method": "POST", ":scheme": "https", ":authority": "localhost"]

  private static func head(_ fields: [(String, String)] = []) -> HTTP2RequestHead {
    var head = HTTP2RequestHead(shared)
    head.add(.path, "/3/device/00")
    for (name, value) in fields { head.add(HTTP2FieldName(name), value) }
    return head
  }

  @discardableResult
  func request(body: Int = 0, tag: Int = 0, _ fields: [(String, String)] = []) throws -> Int {
    try session.request(Self.head(fields), body: [UInt8](repeating: 7, count: body), tag: tag)
  }

  /// The length of the head of a request without further fields.
  var headLength: Int {
    var encoder = HPACKEncoder()
    var bytes: [UInt8] = []
    encoder.append(Self.head(), to: &bytes)
    return bytes.count
  }

  // Read one by one, because a failed expectation would print the whole session.
  var hasWaiting: Bool { session.hasWaiting }
  var isGoingAway: Bool { session.isGoingAway }
  var streamsMax: Int { session.peerStreamsMax }
  var credits: Int { session.budget.credits }
  var departures: [HTTP2ClientSession.Departure] { session.departures }
  func isWhole(_ request: Int, within written: UInt64) -> Bool { session.isWhole(request, within: written) }

  /// The ends of requests: "tag code status body".
  var ends: [String] { ends { " \(String(decoding: $0.body, as: UTF8.self))" } }
  /// The ends of requests: "tag code status".
  var statuses: [String] { ends { _ in "" } }

  private func ends(_ more: (HTTP2Message) -> String) -> [String] {
    events.compactMap {
      guard case .ended(let tag, let code, let response) = $0 else { return nil }
      return "\(tag) \(code)" + (response.map { " \($0.status)\(more($0))" } ?? "")
    }
  }
}

func frame(_ type: UInt8, flags: UInt8 = 0, stream: Int32 = 0, _ payload: [UInt8] = []) -> [UInt8] {
  var bytes: [UInt8] = []
  bytes.appendFrameHead(length: payload.count, type, flags: flags, stream: stream)
  return bytes + payload
}

func number(_ value: UInt32) -> [UInt8] {
  var bytes: [UInt8] = []
  bytes.appendBigEndian(value)
  return bytes
}

/// A header block with `:status: 200`.
let status200: [UInt8] = [0x88]

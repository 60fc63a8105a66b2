// Compares `HTTP2ClientSession` with nghttp2's client session: for any bytes of a server, both report the same events and errors,
// frame by frame, except for `HTTP2Difference.intended`. A third session gets the same bytes in other pieces.
//
// Input: a byte of configuration, then operations. The low four bits of an operation's first byte select it:
//
//   0…9   a frame of that type: flags, stream, length, payload
//   10    DATA: flags, stream, length / 64; the payload is zeros
//   11    a frame of any type: type, then as above
//   12    raw bytes: length, bytes
//   13    an action of the client: a byte whose high bits select it (request, cancel, PING, open waiting requests)
//   14    the head of an answer with status 200, with the flags of the next byte, for the stream of the byte after it
//   15    as 12
//
// A stream is a byte, or 0x80 and four bytes.

internal import CNghttp2

enum HTTP2SessionFuzz {
  static func run(_ input: FuzzInput) {
    var run = Run(input)
    run.go()
  }

  private struct Run {
    private var input: FuzzInput
    private let ours: OwnClient
    private let cut: OwnClient
    private let theirs: ReferenceClient
    private let cutSize: Int
    private var isCompared = true
    private var tag = 0
    /// Bytes of an incomplete frame.
    private var partial: [UInt8] = []
    /// Bytes that `cut` has not received yet.
    private var unheard: [UInt8] = []
    /// All events of our session since the last comparison with `cut`.
    private var told: [ClientEvent] = []

    init(_ input: FuzzInput) {
      self.input = input
      let configuration = self.input.byte()
      var settings = HTTP2SessionSettings()
      settings.streamWindowBytes = configuration & 2 != 0 ? 1000 : 65_536
      settings.connectionWindowBytes = 65_535
      settings.bodyBytesMax = 4096
      ours = OwnClient(settings: settings)
      cut = OwnClient(settings: settings)
      theirs = ReferenceClient(settings: settings)
      cutSize = [1, 7, 10, 4000][Int(configuration >> 6)]
      // With small windows our SETTINGS are acknowledged, because nghttp2 would not apply them otherwise.
      if configuration & 3 != 0 { hear([0, 0, 0, 4, 0, 0, 0, 0, 0] + [0, 0, 0, 4, 1, 0, 0, 0, 0]) }
      for _ in 0..<(configuration >> 2 & 3) { request(Int(configuration >> 4 & 3)) }
    }

    mutating func go() {
      var count = 0
      while !input.isAtEnd, ours.error == nil, count < 200 {
        count += 1
        step()
      }
      catchUp()
      // Nothing is read after the end.
      if ours.error != nil { ours.receive([0, 0, 0, 4, 0, 0, 0, 0, 0]) }
      require(ours.events.isEmpty, "events after the end of the connection")
    }

    private mutating func step() {
      let operation = input.byte() & 15
      switch operation {
      case 0...9: frame(operation)
      case 10:
        let (flags, stream) = (input.byte(), streamID())
        let length = Int(input.byte()) * 64
        hear(head(length, HTTP2FrameType.data, flags, stream) + [UInt8](repeating: 0, count: length))
      case 11: frame(input.byte())
      case 13: act(input.byte())
      case 14:
        let flags = input.byte()
        hear(head(1, 1, flags | 4, streamID()) + [0x88])
      default: hear(input.take(Int(input.byte())))
      }
    }

    private mutating func frame(_ type: UInt8) {
      let (flags, stream) = (input.byte(), streamID())
      let payload = input.take(Int(input.byte()))
      hear(head(payload.count, type, flags, stream) + payload)
    }

    private mutating func streamID() -> UInt32 {
      let byte = input.byte()
      return byte == 0x80 ? UInt32(input.number(bytes: 4)) : UInt32(byte)
    }

    private func head(_ length: Int, _ type: UInt8, _ flags: UInt8, _ stream: UInt32) -> [UInt8] {
      var bytes: [UInt8] = []
      bytes.appendFrameHead(length: length, type, flags: flags, stream: Int32(bitPattern: stream))
      return bytes
    }

    // MARK: - Our side

    private mutating func act(_ what: UInt8) {
      let argument = Int(what & 31)
      catchUp()
      switch what >> 5 {
      case 0...2: request(argument)
      case 3, 4:
        let live = ours.live
        guard !live.isEmpty else { return }
        let tag = live[argument % live.count]
        ours.cancel(tag: tag)
        cut.cancel(tag: tag)
        theirs.cancel(tag: tag)
        compare(nil)
      case 5:
        ours.ping(UInt64(argument))
        cut.ping(UInt64(argument))
        theirs.ping(UInt64(argument))
      default: break
      }
      ours.openWaiting()
      cut.openWaiting()
      theirs.openWaiting()
      compare(nil)
      compareCut()
    }

    private mutating func request(_ size: Int) {
      catchUp()
      let body = [0, 1, 300, 20_000, 70_000][size % 5]
      ours.request(tag: tag, body: body)
      cut.request(tag: tag, body: body)
      theirs.request(tag: tag, body: body)
      tag += 1
      compare(nil)
    }

    // MARK: - The peer's side

    private mutating func hear(_ bytes: [UInt8]) {
      partial += bytes
      while partial.count >= HTTP2FrameHead.byteCount, ours.error == nil {
        let length = Int(WireFrame.number(partial[..<3]))
        let isTooLong = length > HTTP2FrameHead.payloadBytesMax
        guard isTooLong || partial.count >= HTTP2FrameHead.byteCount + length else { return }
        let count = isTooLong ? partial.count : HTTP2FrameHead.byteCount + length
        let frame = WireFrame(bytes: Array(partial[..<count]))
        partial.removeFirst(count)
        ours.receive(frame.bytes[...])
        unheard += frame.bytes
        if isCompared { theirs.receive(frame) }
        compare(frame)
      }
    }

    /// Passes all bytes that our session has received to `cut`, in pieces.
    private mutating func catchUp() {
      let size = max(cutSize, unheard.count / 500)  // or the largest inputs are slow
      for start in stride(from: 0, to: unheard.count, by: size) {
        guard cut.error == nil else { break }
        cut.receive(unheard[start..<min(start + size, unheard.count)])
      }
      unheard = []
      compareCut()
    }

    private mutating func compareCut() {
      require(cut.events == told, "other events when the bytes are cut elsewhere: \(cut.events) and \(told)")
      require(cut.error == ours.error, "another error when the bytes are cut elsewhere")
      require(cut.output == ours.output, "another output when the bytes are cut elsewhere")
      cut.events = []
      told = []
    }

    private mutating func compare(_ frame: WireFrame?) {
      let events = ours.events
      ours.events = []
      told += events
      guard isCompared else { return }
      let expected = theirs.events
      theirs.events = []
      let isSame =
        ours.error == theirs.error
        && (events == expected || events.sorted(by: Self.inOrder) == expected.sorted(by: Self.inOrder))
        && (theirs.hasGivenUpBody || ours.error != nil || ours.dataBytes == theirs.dataBytes)
      if isSame { return }
      guard let frame else { fail("after what our side did: \(events), theirs \(expected)") }
      let disagreement = HTTP2Disagreement(
        frame: frame, ours: (events, ours.error), theirs: (expected, theirs.error), refusedField: theirs.refusedField,
        isInTrailers: theirs.isRefusedInTrailers, lastFields: theirs.fields, isTheirsDone: !theirs.wantsRead)
      guard HTTP2Difference.intended.contains(where: { $0.applies(disagreement) }) else {
        fail(
          """
          \(frame)
            ours:   \(events) error \(ours.error.map(String.init) ?? "none") DATA \(ours.dataBytes)
            theirs: \(expected) error \(theirs.error.map(String.init) ?? "none") DATA \(theirs.dataBytes) \
          \(theirs.refusedField ?? "")
          """)
      }
      // Later events may differ for the same reason.
      isCompared = false
    }

    private static func inOrder(_ left: ClientEvent, _ right: ClientEvent) -> Bool {
      left.description < right.description
    }
  }

  // MARK: - The request

  private static let fields = [
    (":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", "/3/device/00"),
  ]

  static let head: HTTP2RequestHead = {
    var head = HTTP2RequestHead([":method": "POST", ":scheme": "https", ":authority": "localhost"])
    head.add(.path, "/3/device/00")
    return head
  }()

  /// The fields of the same request, in nghttp2's form.
  static func withFields<Result>(_ body: (UnsafeBufferPointer<nghttp2_nv>) -> Result) -> Result {
    nativeFields.withUnsafeBufferPointer(body)
  }

  /// Never freed.
  nonisolated(unsafe) private static let nativeFields: [nghttp2_nv] = fields.map { name, value in
    let copies = [name, value].map { text in
      let copy = UnsafeMutablePointer<UInt8>.allocate(capacity: text.utf8.count)
      copy.initialize(from: Array(text.utf8), count: text.utf8.count)
      return copy
    }
    return nghttp2_nv(
      name: copies[0], value: copies[1], namelen: name.utf8.count, valuelen: value.utf8.count, flags: 0)
  }
}

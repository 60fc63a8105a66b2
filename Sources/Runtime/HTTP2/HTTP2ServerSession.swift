// The owner of one nghttp2 session on the server's side. It does no I/O: `receive` takes received bytes, `send` returns bytes to
// send, and requests are collected for the owner to read after the call.
//
// The callbacks run inside `receive` and `send` and only store things. They never call other code, so nothing can free or
// re-enter the session underneath nghttp2. A slot table owns the streams. nghttp2 keeps the address of each as the stream's user
// data, so no lookup is needed.

internal import CNghttp2

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// The server's end of an HTTP/2 connection. Not thread-safe; confined to its owner.
@safe
public final class HTTP2ServerSession {
  /// A stream that nghttp2 has not closed.
  final class Stream {
    fileprivate(set) var id: Int32 = 0
    /// The slot of this object in the session's table.
    fileprivate(set) var slot = 0
    var outgoing: [UInt8] = []
    var outgoingOffset = 0
    var endsAfterOutgoing = true
    var incoming = HTTP2Message()

    /// Resets a stream that has ended, for reuse.
    fileprivate func reset() {
      id = 0
      outgoing = []
      outgoingOffset = 0
      endsAfterOutgoing = true
      incoming.removeAll()
    }
  }

  let settings: HTTP2SessionSettings
  private var handle: OpaquePointer?
  private var streams = SlotTable<Stream>()
  /// Ended streams and read messages, which are used again: at hundreds of thousands of requests a second allocating them would
  /// be a large part of the work.
  private var spareStreams: [Stream] = []
  private var spareMessages: [HTTP2Message] = []
  private static let sparesMax = 1024
  /// The stream whose header block is being received; nil for a block that is ignored.
  var receiving: Stream?
  var requests: [HTTP2Request] = []

  /// Makes a session and queues its first SETTINGS.
  public init(settings: HTTP2SessionSettings = HTTP2SessionSettings()) {
    self.settings = settings
    makeHandle()
    var entries = [entry(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, UInt32(settings.streamWindowBytes))]
    if let streamsMax = settings.streamsMax {
      entries.append(entry(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, streamsMax))
    }
    unsafe nghttp2_submit_settings(handle, UInt8(NGHTTP2_FLAG_NONE.rawValue), entries, entries.count)
    unsafe nghttp2_session_set_local_window_size(
      handle, UInt8(NGHTTP2_FLAG_NONE.rawValue), 0, settings.connectionWindowBytes)
  }

  deinit {
    unsafe nghttp2_session_del(handle)
  }

  // MARK: - Bytes and requests

  /// Handles bytes from the peer.
  ///
  /// - Throws: `HTTP2Error` after a connection error. The owner sends what `send` returns, then closes.
  public func receive(_ bytes: UnsafeRawBufferPointer) throws(HTTP2Error) {
    let status = unsafe nghttp2_session_mem_recv(
      handle, bytes.baseAddress?.assumingMemoryBound(to: UInt8.self), bytes.count)
    if status < 0 { throw Self.error("the peer broke the HTTP/2 protocol", Int32(status)) }
  }

  /// Appends bytes to send to `output`, until there are no more or `output` has at least `bytesMax` bytes.
  ///
  /// - Throws: `HTTP2Error` if memory is exhausted or the session is broken.
  public func send(into output: inout [UInt8], upTo bytesMax: Int = 256 * 1024) throws(HTTP2Error) {
    while output.count < bytesMax {
      var chunk: UnsafePointer<UInt8>?
      let count = unsafe nghttp2_session_mem_send(handle, &chunk)
      if count < 0 { throw Self.error("the HTTP/2 session cannot send", Int32(count)) }
      if count == 0 { return }
      unsafe output.append(contentsOf: UnsafeBufferPointer(start: chunk, count: count))
    }
  }

  /// Whether the session is over, with nothing more to read or send.
  public var isFinished: Bool {
    unsafe nghttp2_session_want_write(handle) == 0 && nghttp2_session_want_read(handle) == 0
  }

  /// Swaps the requests since the last call, in order, for an empty array whose memory is used again.
  public func drainRequests(into batch: inout [HTTP2Request]) {
    batch.removeAll(keepingCapacity: true)
    swap(&batch, &requests)
  }

  /// Takes back the memory of a message that came in a request and was read.
  public func recycle(_ message: consuming HTTP2Message) {
    guard spareMessages.count < Self.sparesMax else { return }
    message.removeAll()
    spareMessages.append(message)
  }

  // MARK: - Answers

  /// Queues the answer to a request.
  ///
  /// - Parameter ends: false leaves the stream open after the body, for injected faults (`reset` ends it).
  public func respond(
    to id: Int32, _ headers: borrowing HTTP2HeaderBlock, body: [UInt8] = [], ends: Bool = true
  ) {
    guard let stream = stream(id) else { return }  // the client gave the stream up
    let hasBody = !body.isEmpty || !ends
    stream.outgoing = body
    stream.endsAfterOutgoing = ends
    unsafe headers.withFields { fields in
      var provider = unsafe dataProvider(stream)
      _ = unsafe withUnsafePointer(to: &provider) { provider in
        unsafe nghttp2_submit_response(
          handle, id, fields.baseAddress, fields.count, hasBody ? provider : nil)
      }
    }
  }

  /// Changes SETTINGS_MAX_CONCURRENT_STREAMS at run time.
  public func limitStreams(to streamsMax: UInt32) {
    let entries = [entry(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, streamsMax)]
    unsafe nghttp2_submit_settings(handle, UInt8(NGHTTP2_FLAG_NONE.rawValue), entries, entries.count)
  }

  /// Queues RST_STREAM.
  public func reset(_ stream: Int32, _ code: HTTP2ErrorCode) {
    unsafe nghttp2_submit_rst_stream(handle, UInt8(NGHTTP2_FLAG_NONE.rawValue), stream, code.rawValue)
  }

  /// Queues GOAWAY. The peer may finish streams up to `lastStream` (by default the last one received) and must open no more.
  public func goAway(lastStream: Int32? = nil, _ code: HTTP2ErrorCode = .noError, debugData: [UInt8] = []) {
    let last = unsafe lastStream ?? nghttp2_session_get_last_proc_stream_id(handle)
    unsafe nghttp2_submit_goaway(
      handle, UInt8(NGHTTP2_FLAG_NONE.rawValue), last, code.rawValue, debugData, debugData.count)
  }

  // MARK: - For the callbacks

  /// The stream with this id; nil if it was closed or never existed.
  func stream(_ id: Int32) -> Stream? {
    guard let address = unsafe nghttp2_session_get_stream_user_data(handle, id) else { return nil }
    return unsafe Unmanaged<Stream>.fromOpaque(address).takeUnretainedValue()
  }

  /// Adds a stream to the table.
  private func addStream() -> Stream {
    let stream = spareStreams.popLast() ?? Stream()
    stream.slot = streams.insert(stream)
    return stream
  }

  /// The client opened a stream.
  func accept(_ id: Int32) -> Stream {
    let stream = addStream()
    stream.id = id
    unsafe nghttp2_session_set_stream_user_data(handle, id, address(stream))
    return stream
  }

  /// Gives a stream memory for what it receives.
  func receive(into stream: Stream) {
    receiving = stream
    if let spare = spareMessages.popLast() { stream.incoming = spare }
  }

  /// Releases a stream that nghttp2 has closed or never opened.
  func remove(_ stream: Stream) {
    unsafe nghttp2_session_set_stream_user_data(handle, stream.id, nil)
    streams.remove(stream.slot)
    guard spareStreams.count < Self.sparesMax else { return }
    stream.reset()
    spareStreams.append(stream)
  }

  private func address(_ stream: Stream) -> UnsafeMutableRawPointer {
    unsafe Unmanaged.passUnretained(stream).toOpaque()
  }

  private func dataProvider(_ stream: Stream) -> nghttp2_data_provider {
    var provider = unsafe nghttp2_data_provider()
    unsafe provider.source.ptr = address(stream)
    unsafe provider.read_callback = HTTP2Callbacks.readBody
    return unsafe provider
  }

  private func makeHandle() {
    let context = unsafe Unmanaged.passUnretained(self).toOpaque()
    let status = unsafe nghttp2_session_server_new(&handle, HTTP2Callbacks.table.pointer, context)
    precondition(status == 0, "no memory for an HTTP/2 session")
  }

  private func entry(_ id: nghttp2_settings_id, _ value: UInt32) -> nghttp2_settings_entry {
    nghttp2_settings_entry(settings_id: Int32(id.rawValue), value: value)
  }

  private static func error(_ what: String, _ code: Int32) -> HTTP2Error {
    unsafe HTTP2Error("\(what): \(String(cString: nghttp2_strerror(code)))")
  }
}

extension HTTP2HeaderBlock {
  /// The fields as nghttp2 expects them. The memory is valid during the call; nghttp2 copies it.
  borrowing func withFields<Result>(_ body: (UnsafeMutableBufferPointer<nghttp2_nv>) -> Result) -> Result {
    let fields = self.fields
    return unsafe bytes.withUnsafeBufferPointer { bytes in
      unsafe withUnsafeTemporaryAllocation(of: nghttp2_nv.self, capacity: max(fields.count, 1)) { list in
        guard let start = unsafe UnsafeMutablePointer(mutating: bytes.baseAddress) else {
          return unsafe body(UnsafeMutableBufferPointer(rebasing: list[..<0]))
        }
        for (index, field) in fields.enumerated() {
          let flags = field.isIndexed ? NGHTTP2_NV_FLAG_NONE : NGHTTP2_NV_FLAG_NO_INDEX
          unsafe list.initializeElement(
            at: index,
            to: nghttp2_nv(
              name: start + Int(field.nameStart), value: start + Int(field.valueStart),
              namelen: Int(field.nameLength), valuelen: Int(field.valueLength), flags: UInt8(flags.rawValue)))
        }
        return unsafe body(UnsafeMutableBufferPointer(rebasing: list[..<fields.count]))
      }
    }
  }
}

// A client session of nghttp2, used as documented, that reports the same events as `HTTP2ClientSession`.

internal import CNghttp2

/// nghttp2's client. Requests wait here until a stream may be opened, because nghttp2 would assign stream ids earlier.
final class ReferenceClient {
  private struct Stream {
    var tag: Int
    var unsent: Int
    var answer: ClientAnswer?
    /// The answer is complete.
    var isComplete = false
    /// The client has cancelled the request.
    var isCancelled = false
  }

  private let settings: HTTP2SessionSettings
  private var session: OpaquePointer?
  private var streams: [Int32: Stream] = [:]
  private var waiting: [(tag: Int, body: Int)] = []
  /// The fields of the last header block, names and values alternating.
  private(set) var fields: [[UInt8]] = []
  /// The stream of the current header block.
  private var headersStream: Int32 = 0
  private var isGoingAway = false

  /// The events so far; the owner removes those that it has read.
  var events: [ClientEvent] = []
  /// The code of the GOAWAY with which nghttp2 ended the connection, or a code of its own.
  private(set) var error: UInt32?
  /// The header field that nghttp2 refused or ignored last.
  private(set) var refusedField: String?
  private(set) var isRefusedInTrailers = false
  /// Bytes of DATA that were sent.
  private(set) var dataBytes = 0
  /// A request was cancelled before its body was sent.
  private(set) var hasGivenUpBody = false

  init(settings: HTTP2SessionSettings) {
    self.settings = settings
    var options: OpaquePointer?
    nghttp2_option_new(&options)
    nghttp2_option_set_peer_max_concurrent_streams(options, settings.peerStreamsMaxBeforeSettings)
    nghttp2_option_set_max_settings(options, 1 << 20)
    nghttp2_option_set_max_outbound_ack(options, 1 << 20)
    nghttp2_session_client_new2(&session, Self.callbacks, Unmanaged.passUnretained(self).toOpaque(), options)
    nghttp2_option_del(options)
    let entries = [
      nghttp2_settings_entry(settings_id: Int32(NGHTTP2_SETTINGS_ENABLE_PUSH.rawValue), value: 0),
      nghttp2_settings_entry(
        settings_id: Int32(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE.rawValue), value: UInt32(settings.streamWindowBytes)),
    ]
    nghttp2_submit_settings(session, 0, entries, entries.count)
    nghttp2_session_set_local_window_size(session, 0, 0, settings.connectionWindowBytes)
    send()
  }

  deinit { nghttp2_session_del(session) }

  /// Whether nghttp2 would read more.
  var wantsRead: Bool { nghttp2_session_want_read(session) != 0 }

  // MARK: - What the owner does

  func receive(_ frame: WireFrame) {
    let status = nghttp2_session_mem_recv(session, frame.bytes, frame.bytes.count)
    if status < 0 { error = 0xFFFF_0000 | UInt32(-status) }
    send()
  }

  func request(tag: Int, body: Int) {
    if waiting.isEmpty, mayOpen {
      open(tag, body)
    } else if isGoingAway {
      events.append(.ended(tag: tag, code: HTTP2ErrorCode.refusedStream.rawValue, answer: nil))
    } else {
      waiting.append((tag, body))
    }
    send()
  }

  func openWaiting() {
    while !waiting.isEmpty, mayOpen {
      let next = waiting.removeFirst()
      open(next.tag, next.body)
      send()
    }
  }

  func cancel(tag: Int) {
    if let place = waiting.firstIndex(where: { $0.tag == tag }) {
      waiting.remove(at: place)
      events.append(.ended(tag: tag, code: HTTP2ErrorCode.cancel.rawValue, answer: nil))
    } else if let id = streams.first(where: { $0.value.tag == tag })?.key {
      streams[id]?.isCancelled = true
      nghttp2_submit_rst_stream(session, 0, id, HTTP2ErrorCode.cancel.rawValue)
      send()
    }
  }

  func ping(_ number: UInt64) {
    withUnsafeBytes(of: number) { bytes in
      _ = nghttp2_submit_ping(session, 0, bytes.baseAddress?.assumingMemoryBound(to: UInt8.self))
    }
    send()
  }

  // MARK: -

  private var mayOpen: Bool {
    let streamsMax = nghttp2_session_get_remote_settings(session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)
    return !isGoingAway && error == nil && streams.count < Int(streamsMax)
  }

  private func open(_ tag: Int, _ body: Int) {
    var provider = nghttp2_data_provider()
    provider.read_callback = { _, id, _, length, flags, _, context in
      let client = ReferenceClient.from(context)
      guard let unsent = client.streams[id]?.unsent else { return Int(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue) }
      let count = min(length, unsent)
      client.streams[id]?.unsent = unsent - count
      if count == unsent { flags?.pointee |= UInt32(NGHTTP2_DATA_FLAG_EOF.rawValue) }
      return count
    }
    let id = HTTP2SessionFuzz.withFields { fields in
      withUnsafePointer(to: &provider) { provider in
        nghttp2_submit_request(session, nil, fields.baseAddress, fields.count, body > 0 ? provider : nil, nil)
      }
    }
    require(id > 0, "nghttp2 takes no request")
    streams[id] = Stream(tag: tag, unsent: body)
  }

  /// Sends all pending output of nghttp2.
  private func send() {
    while true {
      var chunk: UnsafePointer<UInt8>?
      let count = nghttp2_session_mem_send(session, &chunk)
      if count <= 0 { return }
    }
  }

  private func complete(_ id: Int32) {
    guard streams[id] != nil else { return }
    streams[id]?.isComplete = true
    // Like our session: the server does not need the rest of the request (RFC 9113 §8.1).
    if streams[id]?.unsent ?? 0 > 0 {
      nghttp2_submit_rst_stream(session, 0, id, HTTP2ErrorCode.cancel.rawValue)
    }
  }

  // MARK: - Callbacks

  private static func from(_ context: UnsafeMutableRawPointer?) -> ReferenceClient {
    Unmanaged<ReferenceClient>.fromOpaque(context!).takeUnretainedValue()
  }

  nonisolated(unsafe) private static let callbacks: OpaquePointer? = {
    var callbacks: OpaquePointer?
    nghttp2_session_callbacks_new(&callbacks)
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks) { _, frame, context in
      from(context).fields = []
      from(context).headersStream = frame!.pointee.hd.stream_id
      return 0
    }
    nghttp2_session_callbacks_set_on_header_callback(callbacks) {
      _, _, name, nameLength, value, valueLength, _, context in
      from(context).fields.append(Array(UnsafeBufferPointer(start: name, count: nameLength)))
      from(context).fields.append(Array(UnsafeBufferPointer(start: value, count: valueLength)))
      return 0
    }
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) { _, _, id, data, length, context in
      let client = from(context)
      guard var answer = client.streams[id]?.answer else { return 0 }
      client.streams[id]?.answer = nil
      let room = max(client.settings.bodyBytesMax - answer.body.count, 0)
      if length > room { answer.isTruncated = true }
      answer.body.append(contentsOf: UnsafeBufferPointer(start: data, count: min(length, room)))
      client.streams[id]?.answer = answer
      return 0
    }
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { _, frame, context in
      from(context).didReceive(frame!.pointee)
      return 0
    }
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks) { _, frame, context in
      let head = frame!.pointee.hd
      if head.type == HTTP2FrameType.goAway { from(context).error = frame!.pointee.goaway.error_code }
      if head.type == HTTP2FrameType.data { from(context).dataBytes += head.length }
      return 0
    }
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) { _, id, code, context in
      let client = from(context)
      guard let stream = client.streams.removeValue(forKey: id) else { return 0 }
      if stream.unsent > 0 { client.hasGivenUpBody = true }
      // Like our session: no peer processes a request before its end.
      let told = stream.unsent > 0 && !stream.isCancelled ? HTTP2ErrorCode.refusedStream.rawValue : code
      client.events.append(
        stream.isComplete
          ? .ended(tag: stream.tag, code: 0, answer: stream.answer)
          : .ended(tag: stream.tag, code: told, answer: nil))
      return 0
    }
    nghttp2_session_callbacks_set_error_callback2(callbacks) { _, code, text, length, context in
      guard code == NGHTTP2_ERR_HTTP_HEADER.rawValue, let text else { return 0 }
      let message = UnsafeBufferPointer(start: text, count: length)
      let client = from(context)
      client.isRefusedInTrailers = client.streams[client.headersStream]?.answer != nil
      client.refusedField = String(decoding: message.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      return 0
    }
    return callbacks
  }()

  private func didReceive(_ frame: nghttp2_frame) {
    let id = frame.hd.stream_id
    switch frame.hd.type {
    case HTTP2FrameType.headers:
      if streams[id]?.answer == nil, fields.first.map({ Array(":status".utf8) == $0 }) == true {
        // Interim answers are ignored.
        if fields[1].first != UInt8(ascii: "1") { streams[id]?.answer = ClientAnswer(fields: fields) }
      }
      if frame.hd.flags & HTTP2FrameFlags.endsStream != 0 { complete(id) }
    case HTTP2FrameType.data:
      if frame.hd.flags & HTTP2FrameFlags.endsStream != 0 { complete(id) }
    case HTTP2FrameType.settings:
      if frame.hd.flags & HTTP2FrameFlags.acknowledges == 0 { events.append(.settings) }
    case HTTP2FrameType.ping:
      guard frame.hd.flags & HTTP2FrameFlags.acknowledges != 0 else { return }
      events.append(.pong(withUnsafeBytes(of: frame.ping.opaque_data) { $0.loadUnaligned(as: UInt64.self) }))
    case HTTP2FrameType.goAway:
      isGoingAway = true
      let data = UnsafeBufferPointer(start: frame.goaway.opaque_data, count: frame.goaway.opaque_data_len)
      events.append(
        .goAway(
          lastStream: frame.goaway.last_stream_id, code: frame.goaway.error_code,
          debugData: Array(data.prefix(settings.budget.debugDataBytesMax))))
      for request in waiting {
        events.append(.ended(tag: request.tag, code: HTTP2ErrorCode.refusedStream.rawValue, answer: nil))
      }
      waiting = []
    default: break
    }
  }
}

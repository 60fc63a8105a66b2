// nghttp2's callbacks. Each one stores something in its session and returns. None calls other code.

internal import CNghttp2

/// nghttp2's callback table, made once for all sessions.
enum HTTP2Callbacks {
  // @unchecked: filled once before it is shared, read-only afterwards.
  @safe
  struct Table: @unchecked Sendable {
    let pointer: OpaquePointer?
  }

  static let table: Table = {
    var callbacks: OpaquePointer?
    unsafe nghttp2_session_callbacks_new(&callbacks)
    unsafe nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, beginHeaders)
    unsafe nghttp2_session_callbacks_set_on_header_callback(callbacks, header)
    unsafe nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, bodyChunk)
    unsafe nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, frameReceived)
    unsafe nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, streamClosed)
    return unsafe Table(pointer: callbacks)
  }()

  private static func session(_ context: UnsafeMutableRawPointer?) -> HTTP2ServerSession {
    guard let context = unsafe context else { preconditionFailure("an HTTP/2 callback without its session") }
    return unsafe Unmanaged<HTTP2ServerSession>.fromOpaque(context).takeUnretainedValue()
  }

  /// The same without counting a reference, for callbacks that come several times a request. The session's owner is in a caller's
  /// frame, so the session stays alive.
  private static func withSession<Result>(
    _ context: UnsafeMutableRawPointer?, _ body: (HTTP2ServerSession) -> Result
  ) -> Result {
    guard let context = unsafe context else { preconditionFailure("an HTTP/2 callback without its session") }
    return unsafe Unmanaged<HTTP2ServerSession>.fromOpaque(context)._withUnsafeGuaranteedRef(body)
  }

  private static func hasFlag(_ flags: UInt8, _ flag: nghttp2_flag) -> Bool { flags & UInt8(flag.rawValue) != 0 }

  // MARK: - Receiving

  private static let beginHeaders: nghttp2_on_begin_headers_callback = { _, frame, context in
    guard let id = unsafe frame?.pointee.hd.stream_id else { return 0 }
    return unsafe withSession(context) { session in
      session.receiving = nil
      // A second block is trailers, which are ignored.
      if session.stream(id) == nil { session.receive(into: session.accept(id)) }
      return 0
    }
  }

  private static let header: nghttp2_on_header_callback = {
    _, _, name, nameLength, value, valueLength, _, context in
    unsafe withSession(context) { session in
      unsafe session.receiving?.incoming.headers.add(
        name: UnsafeBufferPointer(start: name, count: nameLength),
        value: UnsafeBufferPointer(start: value, count: valueLength))
      return 0
    }
  }

  private static let bodyChunk: nghttp2_on_data_chunk_recv_callback = { _, _, id, data, length, context in
    let session = unsafe session(context)
    guard let stream = session.stream(id) else { return 0 }
    let room = max(session.settings.bodyBytesMax - stream.incoming.body.count, 0)
    if room < length { stream.incoming.isTruncated = true }
    unsafe stream.incoming.body.append(contentsOf: UnsafeBufferPointer(start: data, count: min(room, length)))
    return 0
  }

  private static let frameReceived: nghttp2_on_frame_recv_callback = { _, frame, context in
    guard let frame = unsafe frame?.pointee else { return 0 }
    let session = unsafe session(context)
    switch unsafe nghttp2_frame_type(rawValue: UInt32(frame.hd.type)) {
    case NGHTTP2_HEADERS, NGHTTP2_DATA:
      guard unsafe hasFlag(frame.hd.flags, NGHTTP2_FLAG_END_STREAM) else { break }
      unsafe requestEnded(session, frame.hd.stream_id)
    default: break
    }
    return 0
  }

  private static func requestEnded(_ session: HTTP2ServerSession, _ id: Int32) {
    guard let stream = session.stream(id) else { return }
    session.requests.append(HTTP2Request(stream: id, message: stream.incoming.removeMessage()))
  }

  private static let streamClosed: nghttp2_on_stream_close_callback = { _, id, _, context in
    let session = unsafe session(context)
    guard let stream = session.stream(id) else { return 0 }
    session.remove(stream)
    return 0
  }

  // MARK: - Sending

  static let readBody: nghttp2_data_source_read_callback = { _, _, buffer, length, flags, source, _ in
    guard let address = unsafe source?.pointee.ptr, let buffer = unsafe buffer, let flags = unsafe flags else {
      return 0
    }
    return unsafe Unmanaged<HTTP2ServerSession.Stream>.fromOpaque(address)._withUnsafeGuaranteedRef { stream in
      let count = min(length, stream.outgoing.count - stream.outgoingOffset)
      if count == 0, !stream.endsAfterOutgoing { return Int(NGHTTP2_ERR_DEFERRED.rawValue) }
      unsafe stream.outgoing.withUnsafeBytes { bytes in
        guard let start = bytes.baseAddress, count > 0 else { return }
        unsafe UnsafeMutableRawPointer(buffer).copyMemory(from: start + stream.outgoingOffset, byteCount: count)
      }
      stream.outgoingOffset += count
      if stream.outgoingOffset == stream.outgoing.count, stream.endsAfterOutgoing {
        unsafe flags.pointee |= UInt32(NGHTTP2_DATA_FLAG_EOF.rawValue)
      }
      return count
    }
  }
}

// What nghttp2 calls back. Every callback notes something down in its session and returns; none calls out.

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
    unsafe nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, frameSent)
    unsafe nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, frameNotSent)
    unsafe nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, streamClosed)
    return unsafe Table(pointer: callbacks)
  }()

  private static func session(_ context: UnsafeMutableRawPointer?) -> HTTP2Session {
    guard let context = unsafe context else { preconditionFailure("an HTTP/2 callback without its session") }
    return unsafe Unmanaged<HTTP2Session>.fromOpaque(context).takeUnretainedValue()
  }

  /// The same without counting a reference, for callbacks that come several times a request; the owner of the session is
  /// below us on the stack.
  private static func withSession<Result>(
    _ context: UnsafeMutableRawPointer?, _ body: (HTTP2Session) -> Result
  ) -> Result {
    guard let context = unsafe context else { preconditionFailure("an HTTP/2 callback without its session") }
    return unsafe Unmanaged<HTTP2Session>.fromOpaque(context)._withUnsafeGuaranteedRef(body)
  }

  private static func hasFlag(_ flags: UInt8, _ flag: nghttp2_flag) -> Bool { flags & UInt8(flag.rawValue) != 0 }

  // MARK: - Receiving

  private static let beginHeaders: nghttp2_on_begin_headers_callback = { _, frame, context in
    guard let id = unsafe frame?.pointee.hd.stream_id else { return 0 }
    return unsafe withSession(context) { session in
      session.receiving = nil
      guard let stream = session.stream(id) else {
        if session.side == .server { session.receive(into: session.accept(id)) }
        return 0
      }
      if stream.incoming.headers.isEmpty {
        session.receive(into: stream)
      } else if session.side == .client, stream.incoming.status < 200 {
        // The final response after an interim one. Any other second block is trailers, which are of no use to us.
        stream.incoming.headers.removeAll()
        session.receiving = stream
      }
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
      unsafe messageEnded(session, frame.hd.stream_id)
    case NGHTTP2_SETTINGS:
      guard unsafe !hasFlag(frame.hd.flags, NGHTTP2_FLAG_ACK) else { break }
      session.hasPeerSettings = true
      session.events.append(.settings)
    case NGHTTP2_GOAWAY:
      session.isGoingAway = true
      let goAway = unsafe frame.goaway
      let debugData = unsafe [UInt8](
        UnsafeBufferPointer(start: goAway.opaque_data, count: goAway.opaque_data_len))
      unsafe session.events.append(
        .goAway(
          lastStream: goAway.last_stream_id, HTTP2ErrorCode(rawValue: goAway.error_code), debugData: debugData))
    case NGHTTP2_PING:
      guard unsafe hasFlag(frame.hd.flags, NGHTTP2_FLAG_ACK) else { break }
      let number = unsafe withUnsafeBytes(of: frame.ping.opaque_data) { unsafe $0.loadUnaligned(as: UInt64.self) }
      session.events.append(.pong(number))
    default: break
    }
    return 0
  }

  private static func messageEnded(_ session: HTTP2Session, _ id: Int32) {
    guard let stream = session.stream(id) else { return }
    stream.isIncomingComplete = true
    switch session.side {
    case .server:
      session.events.append(.request(stream: id, stream.incoming.take()))
    case .client:
      // Answered before the request was sent to its end: the rest is not wanted (RFC 9113 §8.1).
      if stream.outgoingOffset < stream.outgoing.count { session.reset(id, .cancel) }
    }
  }

  private static let streamClosed: nghttp2_on_stream_close_callback = { _, id, code, context in
    let session = unsafe session(context)
    guard let stream = session.stream(id) else { return 0 }
    let response = session.side == .client && stream.isIncomingComplete ? stream.incoming.take() : nil
    session.events.append(
      .streamClosed(stream: id, tag: stream.tag, HTTP2ErrorCode(rawValue: code), response: response))
    session.remove(stream)
    return 0
  }

  // MARK: - Sending

  private static let frameSent: nghttp2_on_frame_send_callback = { _, frame, context in
    guard let header = unsafe frame?.pointee.hd, header.type == UInt8(NGHTTP2_HEADERS.rawValue) else { return 0 }
    return unsafe withSession(context) { session in
      guard session.side == .client, let stream = session.stream(header.stream_id) else { return 0 }
      session.departedTags.append(stream.tag)
      return 0
    }
  }

  /// HEADERS that could not be sent (the peer is going away). The stream may not have been opened, so ask our table
  /// too.
  private static let frameNotSent: nghttp2_on_frame_not_send_callback = { _, frame, _, context in
    guard let header = unsafe frame?.pointee.hd, header.type == UInt8(NGHTTP2_HEADERS.rawValue) else { return 0 }
    let session = unsafe session(context)
    let id = header.stream_id
    guard let stream = session.stream(id) ?? session.unopenedStream(id) else { return 0 }
    session.events.append(.streamClosed(stream: stream.id, tag: stream.tag, .refusedStream, response: nil))
    session.remove(stream)
    return 0
  }

  static let readBody: nghttp2_data_source_read_callback = { _, _, buffer, length, flags, source, _ in
    guard let address = unsafe source?.pointee.ptr, let buffer = unsafe buffer, let flags = unsafe flags else {
      return 0
    }
    return unsafe Unmanaged<HTTP2Session.Stream>.fromOpaque(address)._withUnsafeGuaranteedRef { stream in
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

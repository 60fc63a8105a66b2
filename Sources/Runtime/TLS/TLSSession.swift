// TLS of one connection without its socket, server side: bytes in, bytes out. For listeners, whose sockets are SwiftNIO's.
//
// States: handshaking → open → failed. OpenSSL reads from `input` and writes to `output`, which are buffers in memory. Bytes of the
// peer go in by the piece, and each piece is processed to its end, so that both buffers stay as small as a record.

internal import COpenSSL

/// The server's side of a TLS connection. Confined to one thread at a time.
@safe
public final class TLSSession {
  private enum State {
    case handshaking
    case open
    case failed
  }

  /// A record's maximum length without its header.
  private static let recordBytesMax = 16 * 1024
  private static let peerName = "client"

  private let context: TLSContext
  private let ssl: OpaquePointer
  private let input: OpaquePointer
  private let output: OpaquePointer
  private let clock = SystemClock()
  private var state = State.handshaking
  private var messages = TLSMessageCount()
  /// Whether the peer has sent close_notify. It sends nothing after that.
  public private(set) var hasPeerEnded = false

  /// The handshake begins with the first call of `receive`.
  ///
  /// - Parameter context: of a server.
  public init(_ context: TLSContext) throws(TLSError) {
    precondition(context.side == .server)
    ERR_clear_error()
    guard let ssl = unsafe SSL_new(context.handle) else { throw Self.outOfMemory }
    guard let input = unsafe BIO_new(BIO_s_mem()) else {
      unsafe SSL_free(ssl)
      throw Self.outOfMemory
    }
    guard let output = unsafe BIO_new(BIO_s_mem()) else {
      unsafe BIO_free(input)
      unsafe SSL_free(ssl)
      throw Self.outOfMemory
    }
    self.context = context
    unsafe self.ssl = unsafe ssl
    unsafe self.input = unsafe input
    unsafe self.output = unsafe output
    unsafe SSL_set_bio(ssl, input, output)  // which it frees
    unsafe SSL_set_accept_state(ssl)
    // Bytes are in memory already: OpenSSL needs no buffer to read ahead into.
    unsafe SSL_set_read_ahead(ssl, 0)
    unsafe SSL_set_default_read_buffer_len(ssl, 0)
    unsafe SSL_set_msg_callback(ssl, Self.noteMessage)
    // The session frees `ssl`, so it exists as long as OpenSSL calls back.
    _ = unsafe SSL_ctrl(ssl, SSL_CTRL_SET_MSG_CALLBACK_ARG, 0, Unmanaged.passUnretained(self).toOpaque())
  }

  deinit {
    unsafe SSL_free(ssl)
  }

  private static var outOfMemory: TLSError {
    TLSError(.configuration, "no TLS connection: \(TLSError.queuedReason())")
  }

  /// Whether the handshake is complete.
  public var isOpen: Bool { state == .open }

  // MARK: - What comes in

  /// Takes bytes from the peer. Afterwards `takeOutput` may have something for it.
  ///
  /// - Parameter decrypted: called with what they contain, at most one record a call.
  /// - Throws: if the peer breaks the protocol or is not let in. The connection must then be closed.
  public func receive(_ bytes: RawSpan, decrypted: (RawSpan) -> Void) throws(TLSError) {
    var failure: TLSError?
    unsafe withUnsafeTemporaryAllocation(byteCount: Self.recordBytesMax, alignment: 16) { record in
      unsafe bytes.withUnsafeBytes { bytes in
        var rest = unsafe bytes[...]
        while unsafe !rest.isEmpty, state != .failed, !hasPeerEnded {
          let piece = unsafe UnsafeRawBufferPointer(rebasing: rest.prefix(Self.recordBytesMax))
          unsafe rest = rest.dropFirst(piece.count)
          ERR_clear_error()
          guard unsafe BIO_write(input, piece.baseAddress, Int32(piece.count)) == piece.count else {
            return fail(Self.outOfMemory, &failure)
          }
          if state == .handshaking { shakeHands(&failure) }
          if state == .open { unsafe read(into: record, decrypted, &failure) }
        }
      }
    }
    if let failure { throw failure }
  }

  private func shakeHands(_ failure: inout TLSError?) {
    ERR_clear_error()
    let status = unsafe SSL_do_handshake(ssl)
    guard status != 1 else {
      state = .open
      return
    }
    let error = unsafe SSL_get_error(ssl, status)
    if error != SSL_ERROR_WANT_READ { fail(handshakeError(error), &failure) }
  }

  private func read(
    into record: UnsafeMutableRawBufferPointer, _ decrypted: (RawSpan) -> Void, _ failure: inout TLSError?
  ) {
    while true {
      ERR_clear_error()
      var count = 0
      let status = unsafe SSL_read_ex(ssl, record.baseAddress, record.count, &count)
      guard !messages.isExceeded else { return fail(.tooManyMessages(from: Self.peerName), &failure) }
      guard status == 1 else {
        switch unsafe SSL_get_error(ssl, status) {
        case SSL_ERROR_WANT_READ: break
        case SSL_ERROR_ZERO_RETURN: hasPeerEnded = true
        default: fail(connectionError(), &failure)
        }
        return
      }
      unsafe decrypted(RawSpan(_unsafeBytes: record[..<count]))
    }
  }

  private func fail(_ error: TLSError, _ failure: inout TLSError?) {
    ERR_clear_error()
    state = .failed
    failure = error
  }

  // MARK: - What goes out

  /// Encrypts bytes for the peer.
  ///
  /// - Parameter encrypted: called with each record.
  /// - Throws: if the session is not open, or `end` was called.
  public func send(_ bytes: RawSpan, encrypted: (RawSpan) -> Void) throws(TLSError) {
    guard state == .open else { throw TLSError(.connection, "the TLS connection with \(Self.peerName) is not open") }
    var failure: TLSError?
    unsafe bytes.withUnsafeBytes { bytes in
      var rest = unsafe bytes[...]
      while unsafe !rest.isEmpty {
        ERR_clear_error()
        var count = 0
        let piece = unsafe UnsafeRawBufferPointer(rebasing: rest)
        guard unsafe SSL_write_ex(ssl, piece.baseAddress, piece.count, &count) == 1 else {
          return fail(connectionError(), &failure)
        }
        unsafe rest = rest.dropFirst(count)
        takeOutput(encrypted)
      }
    }
    if let failure { throw failure }
  }

  /// Tells the peer that nothing more will be sent (close_notify). Bytes can still be received.
  public func end() {
    guard state == .open else { return }
    ERR_clear_error()
    _ = unsafe SSL_shutdown(ssl)
    ERR_clear_error()
  }

  /// Calls `body` with what the session has to tell the peer, if anything: the handshake, alerts, new keys.
  public func takeOutput(_ body: (RawSpan) -> Void) {
    var start: UnsafeMutableRawPointer?
    let count = unsafe BIO_ctrl(output, BIO_CTRL_INFO, 0, &start)
    guard count > 0 else { return }
    unsafe body(RawSpan(_unsafeBytes: UnsafeRawBufferPointer(start: start, count: count)))
    _ = unsafe BIO_ctrl(output, BIO_CTRL_RESET, 0, nil)
  }

  // MARK: - OpenSSL

  /// OpenSSL reports every TLS message. If an open connection has too many, the rest of the piece is dropped.
  private static let noteMessage:
    @convention(c) (Int32, Int32, Int32, UnsafeRawPointer?, Int, OpaquePointer?, UnsafeMutableRawPointer?) -> Void = {
      isWritten, _, type, _, _, _, session in
      guard isWritten == 0, type == SSL3_RT_HANDSHAKE, let session = unsafe session else { return }
      unsafe Unmanaged<TLSSession>.fromOpaque(session)._withUnsafeGuaranteedRef { session in
        guard session.state == .open else { return }
        session.messages.add(at: session.clock.now())
        if session.messages.isExceeded { _ = unsafe BIO_ctrl(session.input, BIO_CTRL_RESET, 0, nil) }
      }
    }

  private func handshakeError(_ error: Int32) -> TLSError {
    guard error == SSL_ERROR_SSL else {
      return TLSError(.connection, "\(Self.peerName) closed the connection during the TLS handshake")
    }
    // The oldest entry is the cause. Alerts have numbers of their own.
    let code: TLSError.Code =
      switch ERR_GET_REASON(ERR_peek_error()) {
      case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: .noCertificate
      case SSL_R_CERTIFICATE_VERIFY_FAILED: .verification
      case SSL_AD_REASON_OFFSET...(SSL_AD_REASON_OFFSET + 255): .refused
      default: .handshake
      }
    return TLSError(code, "TLS handshake with \(Self.peerName) failed: \(TLSError.queuedReason())")
  }

  private func connectionError() -> TLSError {
    TLSError(.connection, "connection with \(Self.peerName) lost: \(TLSError.queuedReason())")
  }
}

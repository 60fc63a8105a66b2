// TLS over a non-blocking socket on an event loop, client or server side.
//
// States: handshaking → open → closed. Output is collected in `output`. `flush()` writes as much as the socket takes, and the
// stream writes the rest when the socket takes more. Input is passed to the delegate as it is decrypted, at most one record (16
// KiB) a call. OpenSSL may need to read in order to write and the other way round, so both are tried whenever the socket is ready.

internal import COpenSSL
internal import CShims

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// The owner of a `TLSStream`. Called on the stream's loop.
public protocol TLSStreamDelegate: AnyObject {
  /// The handshake is complete and the peer verified; `stream.negotiatedProtocol` is known.
  func streamDidOpen(_ stream: TLSStream)
  /// Decrypted bytes. They are valid only during the call.
  func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer)
  /// Everything available was read, and waiting output may have been written (see `bytesWritten`).
  func streamDidProgress(_ stream: TLSStream)
  /// Called before output that the socket did not take at first is written. The delegate may close the stream instead.
  func streamMayWrite(_ stream: TLSStream) -> Bool
  /// The stream was closed by the peer (`nil` after close_notify) or by a failure. Not called after our own `close()`.
  func stream(_ stream: TLSStream, didCloseWith error: TLSError?)
}

extension TLSStreamDelegate {
  public func streamMayWrite(_ stream: TLSStream) -> Bool { true }
}

/// A TLS connection over a connected socket. Confined to its event loop.
@safe
public final class TLSStream {
  private enum State {
    case handshaking
    case open
    case closed
  }

  public let loop: EventLoop
  /// The peer's name in errors: a host name or, on the server side, "client".
  public let peerName: String
  public weak var delegate: (any TLSStreamDelegate)?
  /// The negotiated protocol (ALPN); nil before the handshake is complete, or if there is none.
  public private(set) var negotiatedProtocol: String?
  /// The bytes to write. Append to it, then call `flush()`.
  public var output: [UInt8] = []
  /// Number of bytes of `output` that the socket has taken since the stream began.
  public private(set) var bytesWritten: UInt64 = 0

  private static let recordBytesMax = 16 * 1024
  /// Capacity of an empty `output` that is kept. A busy connection rarely needs more.
  private static let capacityKept = 32 * 1024

  /// After this many bytes in a turn of the loop reading pauses, so that others on the loop have their turn.
  private static let turnBytesMax = 256 * 1024

  private let context: TLSContext
  private let socket: FileDescriptor
  let ssl: OpaquePointer
  private var state = State.handshaking
  private var watch: EventLoop.Watch?
  private var outputStart = 0
  private var writeIsBlocked = false
  private var readWantsWrite = false
  private var messages = TLSMessageCount()
  private var isReadPlanned = false

  /// Takes ownership of a connected, non-blocking socket. The handshake begins with `start()`.
  ///
  /// - Parameter host: client side: the name (or IP address) the server's certificate must be valid for.
  /// - Throws: `TLSError` if OpenSSL fails. The socket is then closed.
  public init(
    _ socket: FileDescriptor, context: TLSContext, host: String? = nil, loop: EventLoop
  ) throws(TLSError) {
    ERR_clear_error()
    guard let ssl = unsafe SSL_new(context.handle) else {
      throw TLSError(.configuration, "no TLS connection: \(TLSError.queuedReason())")
    }
    self.loop = loop
    self.context = context
    self.socket = socket
    unsafe self.ssl = unsafe ssl
    peerName = host ?? "client"
    unsafe SSL_set_fd(ssl, socket.rawValue)
    // The stream frees `ssl`, so it exists as long as OpenSSL calls back.
    _ = unsafe SSL_ctrl(ssl, SSL_CTRL_SET_MSG_CALLBACK_ARG, 0, Unmanaged.passUnretained(self).toOpaque())
    Self.disableNagle(socket.rawValue)
    switch context.side {
    case .server:
      unsafe SSL_set_accept_state(ssl)
    case .client:
      unsafe SSL_set_connect_state(ssl)
      guard let host, unsafe Self.expect(host, ssl) else {
        throw TLSError(.configuration, "\(host ?? "no host") is not a host name a certificate can be checked against")
      }
    }
  }

  deinit {
    unsafe SSL_free(ssl)
  }

  public var isOpen: Bool { state == .open }
  public var isClosed: Bool { state == .closed }
  /// Bytes of `output` that the socket has not taken yet.
  public var bytesPending: Int { output.count - outputStart }

  /// Begins the handshake.
  public func start() {
    watch = loop.watch(socket.rawValue, for: .readable) { [weak self] _ in self?.advance() }
    advance()
  }

  /// Writes `output`. What the socket does not take now is written when it takes more.
  public func flush() {
    guard state == .open, !writeIsBlocked, bytesPending > 0 else { return }
    write()
    updateInterest()
  }

  /// Reads what has arrived, without waiting for the loop to report it. The delegate is called within this call.
  public func receiveNow() {
    guard state == .open else { return }
    advance()
  }

  /// Sends close_notify and closes the socket. The delegate is not called again. Unwritten output is dropped.
  public func close() {
    guard state != .closed else { return }
    if state == .open {
      ERR_clear_error()
      _ = unsafe SSL_shutdown(ssl)  // one record, if the socket takes it; the peer's answer is not awaited
      ERR_clear_error()
    }
    end()
  }

  // MARK: - Progress

  private func advance() {
    if state == .handshaking { shakeHands() }
    guard state == .open else { return }
    if bytesPending > 0, delegate?.streamMayWrite(self) ?? true { write() }
    guard state == .open else { return }
    read()
    guard state == .open else { return }
    delegate?.streamDidProgress(self)
    updateInterest()
  }

  private func shakeHands() {
    ERR_clear_error()
    let status = unsafe SSL_do_handshake(ssl)
    guard status != 1 else {
      state = .open
      negotiatedProtocol = alpnChoice()
      if context.side == .client, !context.protocols.isEmpty, negotiatedProtocol == nil {
        let wanted = context.protocols.joined(separator: ", ")
        return fail(TLSError(.protocolNegotiation, "\(peerName) does not speak \(wanted) (no ALPN answer)"))
      }
      delegate?.streamDidOpen(self)
      return
    }
    switch unsafe SSL_get_error(ssl, status) {
    case SSL_ERROR_WANT_READ: writeIsBlocked = false
    case SSL_ERROR_WANT_WRITE: writeIsBlocked = true
    case let error: return fail(handshakeError(error))
    }
    updateInterest()
  }

  private func write() {
    writeIsBlocked = false
    while state == .open, bytesPending > 0 {
      ERR_clear_error()
      var written = 0
      let status = unsafe output.withUnsafeBytes { bytes in
        let rest = unsafe UnsafeRawBufferPointer(rebasing: bytes[outputStart...])
        return unsafe SSL_write_ex(ssl, rest.baseAddress, rest.count, &written)
      }
      guard status == 1 else {
        switch unsafe SSL_get_error(ssl, status) {
        case SSL_ERROR_WANT_WRITE: writeIsBlocked = true
        case SSL_ERROR_WANT_READ: break
        case let error: return fail(connectionError(error))
        }
        break
      }
      outputStart += written
      bytesWritten += UInt64(written)
    }
    if outputStart == output.count {
      output.removeAll(keepingCapacity: output.capacity <= Self.capacityKept)
      outputStart = 0
    } else if outputStart > 1 << 18 {
      output.removeFirst(outputStart)
      outputStart = 0
    }
  }

  private func read() {
    unsafe withUnsafeTemporaryAllocation(byteCount: Self.recordBytesMax, alignment: 16) { input in
      unsafe read(into: input)
    }
  }

  private func read(into input: UnsafeMutableRawBufferPointer) {
    readWantsWrite = false
    var total = 0
    while state == .open {
      guard total < Self.turnBytesMax else { return planRead() }
      ERR_clear_error()
      var count = 0
      let status = unsafe SSL_read_ex(ssl, input.baseAddress, input.count, &count)
      guard !messages.isExceeded else {
        ERR_clear_error()
        return fail(.tooManyMessages(from: peerName))
      }
      guard status == 1 else {
        switch unsafe SSL_get_error(ssl, status) {
        case SSL_ERROR_WANT_READ: return
        case SSL_ERROR_WANT_WRITE: readWantsWrite = true
        case SSL_ERROR_ZERO_RETURN: fail(nil)
        case let error: fail(connectionError(error))
        }
        return
      }
      total += count
      unsafe delegate?.stream(self, didReceive: UnsafeRawBufferPointer(rebasing: input[..<count]))
    }
  }

  /// Continues reading in the next turn. Bytes that OpenSSL has already read do not make the socket readable.
  private func planRead() {
    guard !isReadPlanned else { return }
    isReadPlanned = true
    loop.schedule(at: loop.now) { [weak self] in
      guard let self else { return }
      isReadPlanned = false
      receiveNow()
    }
  }

  private func updateInterest() {
    guard let watch, state != .closed else { return }
    loop.update(watch, for: writeIsBlocked || readWantsWrite ? [.readable, .writable] : .readable)
  }

  private func fail(_ error: TLSError?) {
    guard state != .closed else { return }
    end()
    delegate?.stream(self, didCloseWith: error)
  }

  private func end() {
    state = .closed
    if let watch { loop.unwatch(watch) }
    watch = nil
    // The descriptor closes only with this object, and the peer should see the end now.
    shutdown(socket.rawValue, Int32(SHUT_RDWR))
  }

  // MARK: - OpenSSL

  /// OpenSSL reports every TLS message. Messages on an open connection are counted, and a peer that sends too many is not read
  /// any more, because OpenSSL processes messages without returning as long as there is something to read.
  static let noteMessage:
    @convention(c) (Int32, Int32, Int32, UnsafeRawPointer?, Int, OpaquePointer?, UnsafeMutableRawPointer?) -> Void = {
      isWritten, _, type, _, _, _, context in
      guard isWritten == 0, type == SSL3_RT_HANDSHAKE, let context = unsafe context else { return }
      unsafe Unmanaged<TLSStream>.fromOpaque(context)._withUnsafeGuaranteedRef { stream in
        guard stream.state == .open else { return }
        stream.messages.add(at: stream.loop.now)
        if stream.messages.isExceeded { shutdown(stream.socket.rawValue, Int32(SHUT_RD)) }
      }
    }

  /// Sets SNI and the name the certificate is verified against.
  private static func expect(_ host: String, _ ssl: OpaquePointer) -> Bool {
    if SocketAddress(numericHost: host, port: 0) != nil {
      return unsafe X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1  // RFC 6066: no SNI for addresses
    }
    unsafe SSL_set_hostflags(ssl, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS))
    return unsafe shim_SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1
  }

  private static func disableNagle(_ descriptor: Int32) {
    var on: Int32 = 1
    unsafe setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
  }

  private func alpnChoice() -> String? {
    var name: UnsafePointer<UInt8>?
    var length: UInt32 = 0
    unsafe SSL_get0_alpn_selected(ssl, &name, &length)
    guard let name = unsafe name, length > 0 else { return nil }
    return unsafe String(decoding: UnsafeBufferPointer(start: name, count: Int(length)), as: UTF8.self)
  }

  private func handshakeError(_ error: Int32) -> TLSError {
    let verification = unsafe SSL_get_verify_result(ssl)
    if context.side == .client, verification != Int(X509_V_OK) {
      ERR_clear_error()
      let reason = unsafe String(cString: X509_verify_cert_error_string(verification))
      return TLSError(.verification, "the certificate of \(peerName) is not accepted: \(reason)")
    }
    if error == SSL_ERROR_SSL {
      return TLSError(.handshake, "TLS handshake with \(peerName) failed: \(TLSError.queuedReason())")
    }
    return TLSError(.connection, "\(peerName) closed the connection during the TLS handshake: \(Self.systemReason())")
  }

  private func connectionError(_ error: Int32) -> TLSError {
    let reason = error == SSL_ERROR_SSL ? TLSError.queuedReason() : Self.systemReason()
    return TLSError(.connection, "connection with \(peerName) lost: \(reason)")
  }

  private static func systemReason() -> String {
    let code = errno
    return code == 0 ? "end of file" : unsafe String(cString: strerror(code))
  }
}

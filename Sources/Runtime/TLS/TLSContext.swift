// The part of TLS that all connections of one kind share: roots or certificate, protocol versions, ALPN.

internal import COpenSSL
internal import CShims

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Settings for TLS connections, client or server side. Created once and used by any number of `TLSStream`s on any thread.
// @unchecked: an SSL_CTX is reference-counted with atomics and not changed after `init`.
@safe
public final class TLSContext: @unchecked Sendable {
  public enum Side: Sendable {
    case client
    case server
  }

  public let side: Side
  /// The offered application protocols, the preferred one first ("h2").
  public let protocols: [String]
  let handle: OpaquePointer
  /// `protocols` as ALPN writes them: a length byte before each name.
  fileprivate let wireProtocols: [UInt8]
  /// Server side: whether a client that offers none of `protocols` is refused. If not, ALPN is not answered.
  fileprivate let requiresProtocol: Bool

  /// Creates the context of a client that trusts the system's roots and, if given, those of `caFile` (PEM, one or several).
  ///
  /// TLS 1.2 or later; the peer must choose one of `protocols`.
  /// - Throws: `TLSError` naming the file that cannot be used.
  public static func client(caFile: String? = nil, protocols: [String] = ["h2"]) throws(TLSError) -> TLSContext {
    let context = try TLSContext(side: .client, protocols: protocols)
    unsafe SSL_CTX_set_verify(context.handle, SSL_VERIFY_PEER, nil)
    guard unsafe SSL_CTX_set_default_verify_paths(context.handle) == 1 else {
      throw TLSError(.configuration, "the system's root certificates cannot be loaded: \(TLSError.queuedReason())")
    }
    if let caFile {
      guard unsafe SSL_CTX_load_verify_file(context.handle, caFile) == 1 else {
        throw TLSError(.configuration, "\(caFile): no usable CA certificate (PEM): \(TLSError.queuedReason())")
      }
    }
    return context
  }

  /// Creates the context of a server with a certificate chain and its private key, both PEM files.
  ///
  /// - Parameter protocols: the protocols the server accepts. A client that offers none of them is refused. If empty, ALPN is not
  ///   answered.
  /// - Throws: `TLSError` naming the file that cannot be used.
  public static func server(
    certificateFile: String, keyFile: String, protocols: [String] = ["h2"]
  ) throws(TLSError) -> TLSContext {
    let context = try TLSContext(side: .server, protocols: protocols)
    guard unsafe SSL_CTX_use_certificate_chain_file(context.handle, certificateFile) == 1 else {
      throw TLSError(.configuration, "\(certificateFile): no usable certificate (PEM): \(TLSError.queuedReason())")
    }
    guard unsafe SSL_CTX_use_PrivateKey_file(context.handle, keyFile, SSL_FILETYPE_PEM) == 1 else {
      throw TLSError(.configuration, "\(keyFile): no usable private key (PEM): \(TLSError.queuedReason())")
    }
    guard unsafe SSL_CTX_check_private_key(context.handle) == 1 else {
      throw TLSError(.configuration, "\(keyFile) is not the key of \(certificateFile)")
    }
    return context
  }

  init(side: Side, protocols: [String], requiresProtocol: Bool = true) throws(TLSError) {
    _ = Self.sigpipeIsIgnored
    ERR_clear_error()
    guard let handle = unsafe SSL_CTX_new(side == .client ? TLS_client_method() : TLS_server_method()) else {
      throw TLSError(.configuration, "no TLS context: \(TLSError.queuedReason())")
    }
    self.side = side
    self.protocols = protocols
    self.requiresProtocol = requiresProtocol
    unsafe self.handle = unsafe handle
    wireProtocols = protocols.flatMap { [UInt8(clamping: $0.utf8.count)] + Array($0.utf8) }
    _ = unsafe shim_SSL_CTX_set_min_proto_version(handle, TLS1_2_VERSION)
    // Renegotiation causes work without use, and no honest peer asks for it (HTTP/2 forbids it: RFC 9113 §9.2.1).
    _ = unsafe SSL_CTX_set_options(handle, Self.noRenegotiation)
    unsafe SSL_CTX_set_msg_callback(handle, TLSStream.noteMessage)
    // Set before SSL_new, because a connection copies its mode when it is created.
    // Idle connections keep no buffers: with thousands of connections used in turn, buffers of their own would always be cold.
    let mode = SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS
    _ = unsafe shim_SSL_CTX_set_mode(handle, Int(mode))
    // One read(2) reads everything available, instead of a record's header and then its body.
    unsafe SSL_CTX_set_default_read_buffer_len(handle, 64 * 1024)
    _ = unsafe SSL_CTX_ctrl(handle, SSL_CTRL_SET_READ_AHEAD, 1, nil)
    switch side {
    case .client: _ = unsafe SSL_CTX_set_alpn_protos(handle, wireProtocols, UInt32(wireProtocols.count))
    case .server where protocols.isEmpty: break
    case .server:
      unsafe SSL_CTX_set_alpn_select_cb(handle, selectProtocol, Unmanaged.passUnretained(self).toOpaque())
    }
  }

  deinit {
    unsafe SSL_CTX_free(handle)
  }

  /// SSL_OP_NO_RENEGOTIATION, whose macro Swift cannot read.
  private static let noRenegotiation: UInt64 = 1 << 30

  /// OpenSSL writes with write(2). A lost peer must be an error, not a signal that ends the process.
  private static let sigpipeIsIgnored: Bool = {
    _ = signal(SIGPIPE, SIG_IGN)
    return true
  }()
}

/// OpenSSL asks which of the client's protocols the server speaks.
private func selectProtocol(
  _: OpaquePointer?, chosen: UnsafeMutablePointer<UnsafePointer<UInt8>?>?, chosenLength: UnsafeMutablePointer<UInt8>?,
  offered: UnsafePointer<UInt8>?, offeredLength: UInt32, context: UnsafeMutableRawPointer?
) -> Int32 {
  guard let context = unsafe context, let chosen = unsafe chosen, let chosenLength = unsafe chosenLength,
    let offered = unsafe offered
  else { return SSL_TLSEXT_ERR_ALERT_FATAL }
  let server = unsafe Unmanaged<TLSContext>.fromOpaque(context).takeUnretainedValue()
  let wire = server.wireProtocols
  // The answer must point into memory that stays valid. The client's offer does, and it has every common name.
  var found = 0
  while found < wire.count {
    let length = Int(wire[found])
    let name = wire[(found + 1)..<(found + 1 + length)]
    var offset = 0
    while offset < Int(offeredLength) {
      let offeredName = unsafe UnsafeBufferPointer(start: offered + offset + 1, count: Int(offered[offset]))
      if unsafe offeredName.elementsEqual(name) {
        unsafe chosen.pointee = offered + offset + 1
        unsafe chosenLength.pointee = offered[offset]
        return SSL_TLSEXT_ERR_OK
      }
      offset += 1 + offeredName.count
    }
    found += 1 + length
  }
  return server.requiresProtocol ? SSL_TLSEXT_ERR_ALERT_FATAL : SSL_TLSEXT_ERR_NOACK
}

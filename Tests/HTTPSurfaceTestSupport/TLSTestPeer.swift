// A TLS client without a socket, directly over OpenSSL, for tests that decide about each byte of a connection.

import COpenSSL

/// The client's side of one connection: bytes of the server go in, bytes for the server come out.
package final class TLSTestPeer {
  private let context: OpaquePointer
  private let ssl: OpaquePointer
  private let input = BIO_new(BIO_s_mem())!
  private let output = BIO_new(BIO_s_mem())!
  /// What the server has sent, decrypted.
  package private(set) var received: [UInt8] = []
  /// Whether the server has sent close_notify.
  package private(set) var hasServerEnded = false
  /// What OpenSSL says of the error that ended the connection.
  package private(set) var failure: String?

  /// - Parameters:
  ///   - caFile: the authorities that the client trusts.
  ///   - version: the only version that the client speaks, such as TLS1_2_VERSION; 0: any.
  ///   - protocols: the protocols it offers (ALPN), each with its length before it.
  package init(caFile: String, version: Int32 = 0, protocols: String = "\u{8}http/1.1") {
    context = SSL_CTX_new(TLS_client_method())
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nil)
    SSL_CTX_load_verify_file(context, caFile)
    if version != 0 {
      SSL_CTX_set_security_level(context, 0)  // OpenSSL allows old versions at this level only
      SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, Int(version), nil)
      SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, Int(version), nil)
    }
    SSL_CTX_set_alpn_protos(context, Array(protocols.utf8), UInt32(protocols.utf8.count))
    ssl = SSL_new(context)
    SSL_set1_host(ssl, "localhost")
    SSL_set_bio(ssl, input, output)
    SSL_set_connect_state(ssl)
  }

  deinit {
    SSL_free(ssl)
    SSL_CTX_free(context)
  }

  package var isOpen: Bool { SSL_is_init_finished(ssl) == 1 }

  /// The protocol that the server chose; nil if it chose none.
  package var chosenProtocol: String? {
    var name: UnsafePointer<UInt8>?
    var length: UInt32 = 0
    SSL_get0_alpn_selected(ssl, &name, &length)
    return name.map { String(decoding: UnsafeBufferPointer(start: $0, count: Int(length)), as: UTF8.self) }
  }

  /// Takes bytes of the server.
  ///
  /// - Returns: bytes for the server.
  package func take(_ bytes: [UInt8] = []) -> [UInt8] {
    if !bytes.isEmpty { BIO_write(input, bytes, Int32(bytes.count)) }
    ERR_clear_error()
    var record = [UInt8](repeating: 0, count: 16_384)
    var status: Int32
    repeat {
      status = SSL_read(ssl, &record, Int32(record.count))
      if status > 0 { received += record[..<Int(status)] }
    } while status > 0
    switch SSL_get_error(ssl, status) {
    case SSL_ERROR_WANT_READ: break
    case SSL_ERROR_ZERO_RETURN: hasServerEnded = true
    default: failure = ERR_reason_error_string(ERR_peek_error()).map { String(cString: $0) } ?? "none"
    }
    return written()
  }

  /// Encrypts bytes for the server.
  package func send(_ bytes: [UInt8]) -> [UInt8] {
    SSL_write(ssl, bytes, Int32(bytes.count))
    return written()
  }

  /// Sends close_notify.
  package func end() -> [UInt8] {
    SSL_shutdown(ssl)
    return written()
  }

  /// Changes the client's keys, and asks the server to change its own (TLS 1.3).
  package func changeKeys() -> [UInt8] {
    SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED)
    SSL_do_handshake(ssl)
    return written()
  }

  /// Begins another handshake (TLS 1.2).
  package func renegotiate() -> [UInt8] {
    SSL_renegotiate(ssl)
    SSL_do_handshake(ssl)
    return written()
  }

  private func written() -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: BIO_ctrl_pending(output))
    BIO_read(output, &bytes, Int32(bytes.count))
    return bytes
  }
}

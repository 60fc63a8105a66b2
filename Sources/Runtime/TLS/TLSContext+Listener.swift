// The TLS of a listener that strangers connect to. Its certificate and key were read from their files by others, who check whether
// the files are private.

internal import COpenSSL

extension TLSContext {
  /// Which part of a listener's TLS cannot be used.
  public enum ListenerFault: Error, Equatable, Sendable {
    /// No certificate, a damaged one, or one that OpenSSL refuses; the reason, which follows the name of the file.
    case certificate(String)
    /// No private key, a damaged one, or one with a passphrase.
    case key(SigningKeyError)
    /// The key does not belong to the first certificate.
    case keyOfAnotherCertificate
    /// The file of the clients' authorities cannot be read, or has no certificate or a damaged one.
    case clientAuthorities
    /// OpenSSL failed; the reason.
    case library(String)
  }

  /// The authorities whose clients are let in.
  public struct ClientAuthorities: Sendable {
    /// One or several certificates (PEM).
    public var file: String
    /// Whether a client without a certificate is refused.
    public var isRequired: Bool

    public init(file: String, isRequired: Bool) {
      self.file = file
      self.isRequired = isRequired
    }
  }

  /// Ciphers of TLS 1.2 with forward secrecy and authenticated encryption (RFC 9325 §4.2). TLS 1.3 has no others.
  private static let ciphers = ["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"]
    .flatMap { ["ECDHE-ECDSA-\($0)", "ECDHE-RSA-\($0)"] }.joined(separator: ":")

  /// Creates the context of a listener.
  ///
  /// Sessions are not resumed: each handshake shows the certificate that is in use and checks the client's, and there are no keys of
  /// tickets to protect.
  /// - Parameters:
  ///   - chain: the listener's certificate, then those that lead to its authority (PEM).
  ///   - key: the private key of the first certificate (PEM).
  ///   - keySource: where the key came from, for errors.
  ///   - clients: the authorities of clients; nil: no certificate is asked for.
  ///   - protocols: the protocols that the listener speaks. A client that offers only others gets no answer to its offer.
  public static func listener(
    chain: [UInt8], key: [UInt8], keySource: String = "the listener's key", clients: ClientAuthorities? = nil,
    protocols: [String]
  ) throws(ListenerFault) -> TLSContext {
    let context: TLSContext
    do {
      context = try TLSContext(side: .server, protocols: protocols, requiresProtocol: false)
    } catch {
      throw .library(error.description)
    }
    guard unsafe SSL_CTX_set_cipher_list(context.handle, ciphers) == 1 else { throw .library(TLSError.queuedReason()) }
    _ = unsafe SSL_CTX_set_options(context.handle, noTickets)
    _ = unsafe SSL_CTX_set_num_tickets(context.handle, 0)
    _ = unsafe SSL_CTX_ctrl(context.handle, SSL_CTRL_SET_SESS_CACHE_MODE, Int(SSL_SESS_CACHE_OFF), nil)

    try context.use(chain: chain)
    let privateKey: OpenSSLKey
    do { privateKey = try OpenSSLKey.privateKey(pem: key, source: keySource) } catch { throw .key(error) }
    guard unsafe privateKey.use(in: context.handle) else { throw .keyOfAnotherCertificate }
    if let clients { try context.use(clients) }
    return context
  }

  /// SSL_OP_NO_TICKET, whose macro Swift cannot read.
  private static let noTickets: UInt64 = 1 << 14

  private func use(chain: [UInt8]) throws(ListenerFault) {
    ERR_clear_error()
    var count = 0
    var isRefused = false
    let isWhole = unsafe chain.withUnsafeBytes { bytes in
      guard let bio = unsafe BIO_new_mem_buf(bytes.baseAddress, Int32(clamping: bytes.count)) else { return false }
      defer { unsafe BIO_free(bio) }
      // Without a callback of our own OpenSSL would ask for a passphrase on the terminal.
      while let certificate = unsafe PEM_read_bio_X509(bio, nil, { _, _, _, _ in -1 }, nil) {
        defer { unsafe X509_free(certificate) }
        // Both take a reference of their own.
        let isTaken =
          count == 0
          ? unsafe Int(SSL_CTX_use_certificate(handle, certificate))
          : unsafe SSL_CTX_ctrl(handle, SSL_CTRL_CHAIN_CERT, 1, UnsafeMutableRawPointer(certificate))
        isRefused = isTaken != 1
        if isRefused { return false }
        count += 1
      }
      return ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE
    }
    let reason = TLSError.queuedReason()
    guard count > 0 || isRefused else { throw .certificate(PEMDiagnosis.text(of: chain, expected: .certificate)) }
    guard isWhole else { throw .certificate("certificate \(count + 1) of the chain cannot be used (\(reason))") }
  }

  private func use(_ clients: ClientAuthorities) throws(ListenerFault) {
    defer { ERR_clear_error() }
    guard unsafe SSL_CTX_load_verify_file(handle, clients.file) == 1,
      let names = unsafe SSL_load_client_CA_file(clients.file)
    else { throw .clientAuthorities }
    unsafe SSL_CTX_set_client_CA_list(handle, names)
    unsafe SSL_CTX_set_verify(
      handle, SSL_VERIFY_PEER | (clients.isRequired ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), nil)
  }

  /// The end of the certificate's validity, in seconds since 1970; nil if the context has no certificate.
  public var certificateExpiry: Int64? {
    guard let certificate = unsafe SSL_CTX_get0_certificate(handle), let epoch = unsafe ASN1_TIME_set(nil, 0) else {
      return nil
    }
    defer { unsafe ASN1_TIME_free(epoch) }
    var (days, seconds) = (Int32(0), Int32(0))
    guard unsafe ASN1_TIME_diff(&days, &seconds, epoch, X509_get0_notAfter(certificate)) == 1 else { return nil }
    return Int64(days) * 86_400 + Int64(seconds)
  }
}

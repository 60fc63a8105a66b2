// Owns an X.509 certificate of OpenSSL: creates it, signs it, and writes it as PEM.

internal import COpenSSL
internal import Runtime

/// OpenSSL could not create a certificate.
struct CertificateError: Error, CustomStringConvertible {
  /// The step that failed.
  let step: String
  var description: String { "OpenSSL cannot make a certificate: \(step) failed" }
}

@safe
final class X509Certificate {
  private static let lifetimeSeconds = 10 * 365 * 86_400
  private let handle: OpaquePointer

  /// Creates and signs a certificate.
  ///
  /// - Parameters:
  ///   - name: its common name.
  ///   - key: the key whose public part is certified.
  ///   - issuer: the authority and its key; nil for a self-signed certificate.
  ///   - extensions: names and values as in OpenSSL's configuration files (x509v3_config(5)).
  init(
    name: String, serial: Int, key: SigningKey, issuer: (certificate: X509Certificate, key: SigningKey)?,
    extensions: [(name: String, value: String)]
  ) throws {
    guard let handle = unsafe X509_new() else { throw CertificateError(step: "X509_new") }
    unsafe self.handle = unsafe handle
    let issuerHandle = unsafe issuer?.certificate.handle ?? handle
    let subjectKey = try PrivateKeyHandle(key)
    let signingKey = try PrivateKeyHandle(issuer?.key ?? key)
    let subject = unsafe X509_get_subject_name(handle)
    let ok: [Int32] = unsafe [
      X509_set_version(handle, 2),  // 2 means version 3
      ASN1_INTEGER_set(X509_get_serialNumber(handle), serial),
      X509_gmtime_adj(X509_getm_notBefore(handle), -3_600) == nil ? 0 : 1,
      X509_gmtime_adj(X509_getm_notAfter(handle), Self.lifetimeSeconds) == nil ? 0 : 1,
      X509_set_pubkey(handle, subjectKey.handle),
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_FLAG | 0, Array(name.utf8), Int32(name.utf8.count), -1, 0),
      X509_set_issuer_name(handle, X509_get_subject_name(issuerHandle)),
    ]
    guard ok.allSatisfy({ $0 == 1 }) else { throw CertificateError(step: "a field") }
    for item in extensions { unsafe try add(item.name, item.value, issuer: issuerHandle) }
    guard unsafe X509_sign(handle, signingKey.handle, EVP_sha256()) > 0 else { throw CertificateError(step: "signing") }
  }

  deinit {
    unsafe X509_free(handle)
  }

  /// The certificate as a PEM text.
  func pem() throws -> [UInt8] {
    guard let bio = unsafe BIO_new(BIO_s_mem()) else { throw CertificateError(step: "BIO_new") }
    defer { unsafe BIO_free(bio) }
    guard unsafe PEM_write_bio_X509(bio, handle) == 1 else { throw CertificateError(step: "PEM_write_bio_X509") }
    var text = [UInt8](repeating: 0, count: unsafe BIO_ctrl_pending(bio))
    guard unsafe BIO_read(bio, &text, Int32(text.count)) == Int32(text.count) else {
      throw CertificateError(step: "BIO_read")
    }
    return text
  }

  private func add(_ name: String, _ value: String, issuer: OpaquePointer) throws {
    var context = unsafe X509V3_CTX()
    unsafe X509V3_set_ctx(&context, issuer, handle, nil, nil, 0)
    guard let item = unsafe X509V3_EXT_conf(nil, &context, name, value) else {
      ERR_clear_error()
      throw CertificateError(step: "the extension \(name)")
    }
    defer { unsafe X509_EXTENSION_free(item) }
    guard unsafe X509_add_ext(handle, item, -1) == 1 else { throw CertificateError(step: "X509_add_ext") }
  }
}

/// Owns an EVP_PKEY that was read from a key's PEM text.
@safe
private struct PrivateKeyHandle: ~Copyable {
  let handle: OpaquePointer

  init(_ key: SigningKey) throws {
    let pem = try key.privateKeyPEM()
    guard let bio = unsafe BIO_new_mem_buf(pem, Int32(pem.count)) else { throw CertificateError(step: "BIO_new") }
    defer { unsafe BIO_free(bio) }
    guard let handle = unsafe PEM_read_bio_PrivateKey(bio, nil, nil, nil) else {
      ERR_clear_error()
      throw CertificateError(step: "PEM_read_bio_PrivateKey")
    }
    unsafe self.handle = unsafe handle
  }

  deinit {
    unsafe EVP_PKEY_free(handle)
  }
}

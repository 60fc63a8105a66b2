// A simulated browser: the keys of its subscriptions, and the decryption of their messages.
//
// It shares no code with the gateway's encryption and uses OpenSSL's own HKDF, so that a mistake in either of them is found.

internal import COpenSSL
public import Runtime

/// The keys of all subscriptions of a simulator. They differ only in their endpoints.
public struct WebPushBrowser: Sendable {
  /// The browser's key pair, whose public half is `p256dh`.
  public let key: KeyAgreementKey
  /// The secret `auth`: 16 bytes.
  public let auth: [UInt8]

  public init(key: KeyAgreementKey, auth: [UInt8]) {
    precondition(auth.count == 16, "an authentication secret has 16 bytes")
    self.key = key
    self.auth = auth
  }

  /// A new browser; nil only if OpenSSL has no randomness.
  public static func generate() -> WebPushBrowser? {
    guard let key = KeyAgreementKey.generate(), let auth = SecureRandom.bytes(16) else { return nil }
    return WebPushBrowser(key: key, auth: auth)
  }

  /// The subscription's text for the gateway.
  ///
  /// - Parameter endpoint: its URL.
  public func token(endpoint: String) -> String {
    "\(endpoint)#auth=\(text(auth))&p256dh=\(text(key.point))"
  }

  /// The subscription as the browser's `PushSubscription.toJSON()` returns it.
  public func json(endpoint: String) -> [UInt8] {
    var writer = JSONWriter(reservingCapacity: 512)
    writer.beginObject()
    writer.key("endpoint")
    writer.string(endpoint)
    writer.key("expirationTime")
    writer.raw(Array("null".utf8))
    writer.key("keys")
    writer.beginObject()
    writer.key("auth")
    writer.string(text(auth))
    writer.key("p256dh")
    writer.string(text(key.point))
    writer.endObject()
    writer.endObject()
    return writer.bytes
  }

  private func text(_ bytes: [UInt8]) -> String { String(decoding: Base64URL.encode(bytes), as: UTF8.self) }

  /// The content of a message; nil if the browser could not decrypt it (RFC 8188 §2, RFC 8291 §4).
  public func decrypt(_ body: [UInt8]) -> [UInt8]? {
    // salt, record size, length of the key id, the sender's public key
    let headerCount = 16 + 4 + 1 + 65
    guard body.count > headerCount + 16, body[20] == 65 else { return nil }
    let salt = Array(body[..<16])
    let recordSize = body[16..<20].reduce(0) { $0 << 8 | Int($1) }
    let sender = Array(body[21..<headerCount])
    let record = Array(body[headerCount...])
    // RFC 8291 §4: there is exactly one record.
    guard recordSize >= 18, record.count <= recordSize, let point = KeyAgreementPoint(sender),
      let secret = key.sharedSecret(with: point)
    else { return nil }
    guard
      let material = Self.derive(
        secret, salt: auth, info: Array("WebPush: info\0".utf8) + key.point + sender, count: 32),
      let contentKey = Self.derive(material, salt: salt, info: Array("Content-Encoding: aes128gcm\0".utf8), count: 16),
      let nonce = Self.derive(material, salt: salt, info: Array("Content-Encoding: nonce\0".utf8), count: 12),
      let padded = GCMContext()?.open(record, key: contentKey, nonce: nonce)
    else { return nil }
    // The delimiter of the last record, and zeros.
    guard let end = padded.lastIndex(where: { $0 != 0 }), padded[end] == 2 else { return nil }
    return Array(padded[..<end])
  }

  /// HKDF with SHA-256 by OpenSSL (RFC 5869).
  private static func derive(_ secret: [UInt8], salt: [UInt8], info: [UInt8], count: Int) -> [UInt8]? {
    guard let context = unsafe EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nil) else { return nil }
    defer {
      unsafe EVP_PKEY_CTX_free(context)
      ERR_clear_error()
    }
    var output = [UInt8](repeating: 0, count: count)
    var length = count
    guard unsafe EVP_PKEY_derive_init(context) == 1,
      unsafe EVP_PKEY_CTX_set_hkdf_md(context, EVP_sha256()) == 1,
      unsafe EVP_PKEY_CTX_set1_hkdf_salt(context, salt, Int32(salt.count)) == 1,
      unsafe EVP_PKEY_CTX_set1_hkdf_key(context, secret, Int32(secret.count)) == 1,
      unsafe EVP_PKEY_CTX_add1_hkdf_info(context, info, Int32(info.count)) == 1,
      unsafe EVP_PKEY_derive(context, &output, &length) == 1, length == count
    else { return nil }
    return output
  }
}

/// Owns a cipher context of OpenSSL.
@safe
private struct GCMContext: ~Copyable {
  private let context: OpaquePointer

  init?() {
    guard let context = unsafe EVP_CIPHER_CTX_new() else { return nil }
    unsafe self.context = context
  }

  deinit {
    unsafe EVP_CIPHER_CTX_free(context)
  }

  /// The plaintext of a ciphertext that is followed by its tag; nil if the tag is wrong.
  func open(_ sealed: [UInt8], key: [UInt8], nonce: [UInt8]) -> [UInt8]? {
    defer { ERR_clear_error() }
    let ciphertext = Array(sealed.dropLast(16))
    var tag = Array(sealed.suffix(16))
    var plaintext = [UInt8](repeating: 0, count: ciphertext.count + 16)
    var count: Int32 = 0
    var rest: Int32 = 0
    guard unsafe EVP_DecryptInit_ex2(context, EVP_aes_128_gcm(), key, nonce, nil) == 1,
      unsafe EVP_DecryptUpdate(context, &plaintext, &count, ciphertext, Int32(ciphertext.count)) == 1,
      unsafe EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, 16, &tag) == 1
    else { return nil }
    var last = [UInt8](repeating: 0, count: 16)
    guard unsafe EVP_DecryptFinal_ex(context, &last, &rest) == 1, rest == 0 else { return nil }
    return Array(plaintext[..<Int(count)])
  }
}

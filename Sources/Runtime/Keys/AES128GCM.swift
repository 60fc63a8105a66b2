// Authenticated encryption: AES-128 in Galois/Counter Mode (NIST SP 800-38D), with a nonce of 12 bytes and a tag of 16.

internal import COpenSSL

/// Encryption of one message with a key that is used only once.
public enum AES128GCM {
  public static let keyBytes = 16
  public static let nonceBytes = 12
  public static let tagBytes = 16

  /// The ciphertext of `plaintext`, followed by the tag.
  public static func seal(_ plaintext: [UInt8], key: [UInt8], nonce: [UInt8]) -> [UInt8] {
    guard let sealed = CipherContext()?.seal(plaintext, key: key, nonce: nonce) else {
      preconditionFailure("OpenSSL has no AES-128-GCM")
    }
    return sealed
  }
}

/// Owns a cipher context of OpenSSL.
@safe
private struct CipherContext: ~Copyable {
  private let context: OpaquePointer

  init?() {
    guard let context = unsafe EVP_CIPHER_CTX_new() else { return nil }
    unsafe self.context = context
  }

  deinit {
    unsafe EVP_CIPHER_CTX_free(context)
  }

  func seal(_ plaintext: [UInt8], key: [UInt8], nonce: [UInt8]) -> [UInt8]? {
    precondition(
      key.count == AES128GCM.keyBytes && nonce.count == AES128GCM.nonceBytes, "a key or nonce of another size")
    defer { ERR_clear_error() }
    // The nonce has GCM's default size.
    guard unsafe EVP_EncryptInit_ex2(context, EVP_aes_128_gcm(), key, nonce, nil) == 1 else { return nil }
    let count = plaintext.count
    var isDone = false
    let sealed = unsafe [UInt8](unsafeUninitializedCapacity: count + AES128GCM.tagBytes) { output, initialized in
      guard let start = output.baseAddress else { return }
      var written: Int32 = 0
      var rest: Int32 = 0
      guard unsafe EVP_EncryptUpdate(context, start, &written, plaintext, Int32(count)) == 1, Int(written) == count,
        unsafe EVP_EncryptFinal_ex(context, start + count, &rest) == 1, rest == 0,
        unsafe EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, Int32(AES128GCM.tagBytes), start + count) == 1
      else { return }
      initialized = count + AES128GCM.tagBytes
      isDone = true
    }
    return isDone ? sealed : nil
  }
}

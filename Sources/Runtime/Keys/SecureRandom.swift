// Random bytes of OpenSSL, for keys and salts.

internal import COpenSSL

public enum SecureRandom {
  /// Unpredictable bytes; nil only when OpenSSL has no randomness.
  public static func bytes(_ count: Int) -> [UInt8]? {
    var bytes = [UInt8](repeating: 0, count: count)
    defer { ERR_clear_error() }
    return unsafe RAND_bytes(&bytes, Int32(count)) == 1 ? bytes : nil
  }
}

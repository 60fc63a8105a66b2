// gzip for request bodies (RFC 1952), with zlib.

internal import CShims
internal import CZlib

/// Compresses request bodies.
public enum Gzip {
  /// Bodies up to this number of bytes are sent uncompressed. Below about a kilobyte, compression costs more than it saves (Expo's
  /// SDK does the same).
  public static let threshold = 1024
  /// The compression level. Level 1 shrinks 100 calls (47 kB) to a fifth in 0.27 ms. Level 6 takes 0.92 ms and saves another 2 %.
  private static let level: Int32 = 1
  /// 15 bits of window. Adding 16 requests a gzip header and trailer.
  private static let windowBits: Int32 = 15 + 16

  /// `bytes` as one gzip member; nil if there is no memory for it.
  public static func compress(_ bytes: [UInt8]) -> [UInt8]? {
    var stream = unsafe z_stream()
    guard unsafe shim_deflateInit2(&stream, level, windowBits) == Z_OK else { return nil }
    defer { unsafe deflateEnd(&stream) }
    let bound = unsafe Int(deflateBound(&stream, UInt(bytes.count)))
    var input = bytes  // zlib's pointer to its input is not const, though it only reads
    let output = unsafe [UInt8](unsafeUninitializedCapacity: bound) { buffer, count in
      unsafe input.withUnsafeMutableBufferPointer { source in
        unsafe stream.next_in = source.baseAddress
        unsafe stream.avail_in = UInt32(source.count)
        unsafe stream.next_out = buffer.baseAddress
        unsafe stream.avail_out = UInt32(bound)
        if unsafe deflate(&stream, Z_FINISH) == Z_STREAM_END { count = unsafe bound - Int(stream.avail_out) }
      }
    }
    return output.isEmpty ? nil : output
  }
}

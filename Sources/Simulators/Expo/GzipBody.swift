// Decompresses a request body with `content-encoding: gzip`.

internal import CShims
internal import CZlib

enum GzipBody {
  /// Maximum size of a decompressed body in bytes; a hundred messages are much smaller.
  static let bytesMax = 4 * 1024 * 1024

  /// The decompressed body, or nil if it is not a complete gzip member or too long.
  static func inflated(_ compressed: [UInt8]) -> [UInt8]? {
    var stream = unsafe z_stream()
    guard unsafe shim_inflateInit2(&stream, 15 + 16) == Z_OK else { return nil }  // +16: a gzip header, nothing else
    defer { unsafe inflateEnd(&stream) }
    var input = compressed
    var output: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 64 * 1024)
    return unsafe input.withUnsafeMutableBufferPointer { source in
      unsafe stream.next_in = source.baseAddress
      unsafe stream.avail_in = UInt32(source.count)
      while true {
        let (status, count) = unsafe chunk.withUnsafeMutableBufferPointer { room in
          unsafe stream.next_out = room.baseAddress
          unsafe stream.avail_out = UInt32(room.count)
          let status = unsafe inflate(&stream, Z_NO_FLUSH)
          return unsafe (status, room.count - Int(stream.avail_out))
        }
        output.append(contentsOf: chunk[..<count])
        if status == Z_STREAM_END { return output }
        guard status == Z_OK, count > 0, output.count <= bytesMax else { return nil }
      }
    }
  }
}

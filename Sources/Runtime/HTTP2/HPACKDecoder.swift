// The header blocks of one connection's answers, decoded by nghttp2 (RFC 7541).

internal import CNghttp2

/// Decodes header blocks in the order in which they came; one that is left out makes all that follow unreadable.
@safe
struct HPACKDecoder: ~Copyable {
  /// All names and values of a block.
  static let bytesMax = 64 * 1024

  private let inflater: OpaquePointer

  init() {
    var inflater: OpaquePointer?
    let status = unsafe nghttp2_hd_inflate_new(&inflater)
    guard status == 0, let inflater = unsafe inflater else { preconditionFailure("no memory for an HPACK decoder") }
    unsafe self.inflater = unsafe inflater
  }

  deinit {
    unsafe nghttp2_hd_inflate_del(inflater)
  }

  /// Calls `field` with each field, in order; name and value are valid during the call.
  ///
  /// - Returns: false for what is no header block, or longer than `bytesMax`: the connection is of no use any more.
  func decode(
    _ block: UnsafeRawBufferPointer,
    field: (_ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>) -> Void
  ) -> Bool {
    var next = unsafe block.baseAddress?.assumingMemoryBound(to: UInt8.self)
    var left = block.count
    var bytes = 0
    while true {
      var found = unsafe nghttp2_nv()
      var flags: Int32 = 0
      let count = unsafe nghttp2_hd_inflate_hd2(inflater, &found, &flags, next, left, 1)
      guard count >= 0 else { return false }
      unsafe next = unsafe next.map { unsafe $0 + count }
      left -= count
      if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0 {
        bytes += unsafe found.namelen + found.valuelen
        guard bytes <= Self.bytesMax else { return false }
        unsafe field(
          UnsafeBufferPointer(start: found.name, count: found.namelen),
          UnsafeBufferPointer(start: found.value, count: found.valuelen))
      }
      if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 {
        unsafe nghttp2_hd_inflate_end_headers(inflater)
        return true
      }
      if left == 0, flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) == 0 { return false }
    }
  }
}

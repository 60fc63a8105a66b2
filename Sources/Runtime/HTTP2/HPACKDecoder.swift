// The header blocks of one connection's answers, decoded by nghttp2 (RFC 7541).

internal import CNghttp2

/// Decodes header blocks in the order in which they came. If one is left out, all later ones are unreadable.
@safe
struct HPACKDecoder: ~Copyable {
  /// The result of decoding a header block.
  enum Outcome: Equatable {
    /// All fields were decoded. Their size is that of names and values, plus `HPACK.entryOverhead` for each field.
    case decoded(listBytes: Int)
    /// The block is invalid. The connection must be closed.
    case malformed
    /// The list is longer than allowed, and the rest was not decoded. The connection must be closed.
    case tooLong
  }

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

  /// Calls `field` for each field, in order. Name and value are valid during the call.
  ///
  /// - Parameter listBytesMax: maximum size of the whole list, as RFC 9113 §6.5.2 defines it.
  func decode(
    _ block: UnsafeRawBufferPointer, listBytesMax: Int = .max,
    field: (_ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>) -> Void
  ) -> Outcome {
    var next = unsafe block.baseAddress?.assumingMemoryBound(to: UInt8.self)
    var left = block.count
    var bytes = 0
    while true {
      var found = unsafe nghttp2_nv()
      var flags: Int32 = 0
      let count = unsafe nghttp2_hd_inflate_hd2(inflater, &found, &flags, next, left, 1)
      guard count >= 0 else { return .malformed }
      unsafe next = unsafe next.map { unsafe $0 + count }
      left -= count
      if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0 {
        bytes += unsafe found.namelen + found.valuelen + HPACK.entryOverhead
        guard bytes <= listBytesMax else { return .tooLong }
        unsafe field(
          UnsafeBufferPointer(start: found.name, count: found.namelen),
          UnsafeBufferPointer(start: found.value, count: found.valuelen))
      }
      if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 {
        unsafe nghttp2_hd_inflate_end_headers(inflater)
        return .decoded(listBytes: bytes)
      }
      if left == 0, flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) == 0 { return .malformed }
    }
  }
}

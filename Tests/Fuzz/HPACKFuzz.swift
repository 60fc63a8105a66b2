// Decodes header blocks (RFC 7541) with `HPACKDecoder` and, in pieces, with nghttp2's inflater; and checks our encoder's blocks
// for any table sizes that a server requests.
//
// Input: a byte that selects blocks or heads. Blocks: the size of the pieces, a length, the block, and so on. Heads: operations.

internal import CNghttp2

enum HPACKFuzz {
  static func run(_ input: FuzzInput) {
    var input = input
    if input.byte() & 1 == 0 { decode(&input) } else { encode(&input) }
  }

  // MARK: - Decoding

  private static func decode(_ input: inout FuzzInput) {
    let decoder = HPACKDecoder()
    var inflater: OpaquePointer?
    nghttp2_hd_inflate_new(&inflater)
    defer { nghttp2_hd_inflate_del(inflater) }
    for _ in 0..<20 where !input.isAtEnd {
      let size = Int(input.byte() & 15) + 1
      let block = input.take(Int(input.number(bytes: 2) & 0x3FF))
      let (expected, isWhole) = inflate(inflater, block, size)
      var fields: [[UInt8]] = []
      let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: block.count, alignment: 1)
      defer { copy.deallocate() }
      copy.copyBytes(from: block)
      let outcome = decoder.decode(UnsafeRawBufferPointer(copy), listBytesMax: listBytesMax) { name, value in
        fields += [Array(name), Array(value)]
      }
      let listBytes = expected.reduce(0) { $0 + $1.count } + expected.count / 2 * HPACK.entryOverhead
      if listBytes > listBytesMax { return require(outcome == .tooLong, "a list was decoded that is too long") }
      guard isWhole else { return require(outcome == .malformed, "a block was decoded that is none") }
      require(outcome == .decoded(listBytes: listBytes), "another size of the list than it has: \(outcome)")
      require(fields == expected, "other fields than were encoded")
    }
  }

  private static let listBytesMax = 4096

  /// Names and values, alternating, and whether the whole block is valid.
  private static func inflate(_ inflater: OpaquePointer?, _ block: [UInt8], _ size: Int) -> ([[UInt8]], isWhole: Bool) {
    var fields: [[UInt8]] = []
    var start = 0
    repeat {
      let end = min(start + size, block.count)
      var piece = Array(block[start..<end])
      let isLast = end == block.count
      while true {
        var field = nghttp2_nv()
        var flags: CInt = 0
        let count = nghttp2_hd_inflate_hd2(inflater, &field, &flags, piece, piece.count, isLast ? 1 : 0)
        guard count >= 0 else { return (fields, false) }
        piece.removeFirst(count)
        if flags & CInt(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0 {
          fields.append(Array(UnsafeBufferPointer(start: field.name, count: field.namelen)))
          fields.append(Array(UnsafeBufferPointer(start: field.value, count: field.valuelen)))
        }
        if flags & CInt(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 {
          nghttp2_hd_inflate_end_headers(inflater)
          return (fields, true)
        }
        if flags & CInt(NGHTTP2_HD_INFLATE_EMIT.rawValue) == 0, piece.isEmpty { break }
      }
      start = end
    } while start < block.count
    return (fields, false)
  }

  // MARK: - Encoding

  private static func encode(_ input: inout FuzzInput) {
    var encoder = HPACKEncoder()
    var inflater: OpaquePointer?
    nghttp2_hd_inflate_new(&inflater)
    defer { nghttp2_hd_inflate_del(inflater) }
    var kinds: [(fields: [(String, String)], shared: HTTP2SharedFields)] = []
    for _ in 0..<60 where !input.isAtEnd {
      let operation = input.byte()
      switch operation & 3 {
      case 0:
        let bytes = UInt32(truncatingIfNeeded: operation & 4 == 0 ? input.number(bytes: 1) : input.number(bytes: 4))
        encoder.limitTable(to: Int(bytes))
        nghttp2_hd_inflate_change_table_size(inflater, Int(bytes))
      case 1:
        let (name, value) = ("x-\(input.byte() & 7)", String(repeating: "v", count: Int(input.byte()) * 4))
        let fields = [(":method", "POST"), (name, value), ("apns-topic", value)]
        kinds.append(
          (fields, HTTP2SharedFields(dictionaryLiteral: fields[0], fields[1], fields[2])))
      default:
        guard !kinds.isEmpty else { continue }
        let kind = kinds[Int(operation >> 2) % kinds.count]
        var head = HTTP2RequestHead(kind.shared)
        let path = String(repeating: "p", count: Int(input.byte()))
        head.add(.path, path)
        head.add(.authorization, "bearer t")
        var block: [UInt8] = []
        encoder.append(head, to: &block)
        let expected = ([(":path", path)] + kind.fields + [("authorization", "bearer t")])
          .flatMap { [Array($0.0.utf8), Array($0.1.utf8)] }
        require(inflate(inflater, block, block.count).0 == expected, "a server would read another head")
      }
    }
  }
}

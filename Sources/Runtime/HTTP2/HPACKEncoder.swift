// The header blocks of one connection's requests (RFC 7541).
//
// Shared fields are added to the peer's table as they come, and none is ever evicted: a field that does not fit is sent as a
// literal every time. So the encoding of a group of shared fields changes only when the table grows, and is cached until then.
// Writing a request's head takes two copies.

/// Encodes heads for one connection, in the order in which they are sent.
struct HPACKEncoder {
  private struct Block {
    let shared: HTTP2SharedFields
    var bytes: [UInt8]
  }

  /// The dynamic table, the oldest entry first.
  private var entries: [(name: [UInt8], value: [UInt8])] = []
  private var entryBytes = 0
  private var bytesMax = HPACK.tableBytes
  private var hasNewLimit = false
  /// The cached encodings of groups of shared fields.
  private var blocks: [Block] = []

  /// The peer's SETTINGS_HEADER_TABLE_SIZE. A smaller table starts empty. A larger one is not used.
  mutating func limitTable(to bytes: Int) {
    guard bytes < bytesMax else { return }
    bytesMax = bytes
    hasNewLimit = true
    entries = []
    entryBytes = 0
    blocks = []
  }

  /// Appends a header block.
  mutating func append(_ head: borrowing HTTP2RequestHead, to output: inout [UInt8]) {
    if hasNewLimit {
      // Set the size to zero to empty the table, then to the allowed size (RFC 7541 §4.2).
      output.appendHPACK(0, prefixBits: 5, 0x20)
      output.appendHPACK(bytesMax, prefixBits: 5, 0x20)
      hasNewLimit = false
    }
    let place = head.sharedPlace
    if place > 0 { output.append(copying: head.literals, 0..<place) }
    appendShared(head.shared, to: &output)
    output.append(copying: head.literals, place..<head.literals.count)
  }

  private mutating func appendShared(_ shared: HTTP2SharedFields, to output: inout [UInt8]) {
    for index in blocks.indices where blocks[index].shared === shared {
      return output.append(copying: blocks[index].bytes)
    }
    let count = entries.count
    for field in shared.fields { append(field.name, field.value, to: &output) }
    if entries.count > count { blocks.removeAll(keepingCapacity: true) }  // the numbers of all entries have changed
    var bytes: [UInt8] = []
    for field in shared.fields { append(field.name, field.value, to: &bytes) }
    blocks.append(Block(shared: shared, bytes: bytes))
  }

  /// Appends one field. It becomes a new entry of the table if it is not in it and fits.
  private mutating func append(_ name: [UInt8], _ value: [UInt8], to output: inout [UInt8]) {
    if let index = HPACK.staticIndex(of: name, value) { return output.appendHPACK(index, prefixBits: 7, 0x80) }
    if let place = entries.firstIndex(where: { $0.name == name && $0.value == value }) {
      return output.appendHPACK(HPACK.staticCount + entries.count - place, prefixBits: 7, 0x80)
    }
    let size = name.count + value.count + HPACK.entryOverhead
    let isKept = entryBytes + size <= bytesMax
    let nameIndex = HPACK.staticIndex(ofName: name) ?? 0
    if isKept {
      output.appendHPACK(nameIndex, prefixBits: 6, 0x40)
      entries.append((name, value))
      entryBytes += size
    } else {
      output.appendHPACK(nameIndex, prefixBits: 4)
    }
    if nameIndex == 0 {
      output.appendHPACK(name.count, prefixBits: 7)
      output.append(contentsOf: name)
    }
    output.appendHPACK(value.count, prefixBits: 7)
    output.append(contentsOf: value)
  }
}

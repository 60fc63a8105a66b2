// The head of a request, encoded as far as possible before its connection is known.
//
// Most fields are the same in every request. A connection sends those once, and afterwards as one byte each (`HPACKEncoder`). The
// other fields are not repeated. They stay out of the peer's table, where they would evict repeated fields. Literals do not
// depend on the connection, so they are written in their final form at once. They are not Huffman-coded: that would save a fifth
// of tokens and ids, and cost more time than everything else.

/// Header fields that many requests have in common. They are compared by identity: create one object for each kind of request,
/// and keep it.
public final class HTTP2SharedFields: ExpressibleByDictionaryLiteral, Sendable {
  let fields: [(name: [UInt8], value: [UInt8])]

  /// - Parameter elements: names in lower case, and values; pseudo-header fields first (RFC 9113 §8.3).
  public init(dictionaryLiteral elements: (String, String)...) {
    fields = elements.map { (Array($0.utf8), Array($1.utf8)) }
  }
}

/// The name of a field whose value differs from request to request.
public struct HTTP2FieldName: Sendable {
  public static let path = HTTP2FieldName(":path")
  public static let authorization = HTTP2FieldName("authorization")

  /// The beginning of a literal that is never indexed (RFC 7541 §6.2.3).
  let literal: [UInt8]
  let isPseudo: Bool

  /// - Parameter name: in lower case.
  public init(_ name: String) {
    let name = Array(name.utf8)
    isPseudo = name.first == UInt8(ascii: ":")
    var literal: [UInt8] = []
    if let index = HPACK.staticIndex(ofName: name) {
      literal.appendHPACK(index, prefixBits: 4, 0x10)
    } else {
      literal.append(0x10)
      literal.appendHPACK(name.count, prefixBits: 7)
      literal.append(contentsOf: name)
    }
    self.literal = literal
  }
}

/// A head: shared fields and fields of its own. It is filled again and again.
public struct HTTP2RequestHead: Sendable {
  public private(set) var shared: HTTP2SharedFields
  /// The encoded fields of its own.
  @usableFromInline private(set) var literals: [UInt8] = []
  /// Where the shared fields belong among them: behind the pseudo-header fields.
  private(set) var sharedPlace = 0

  public init(_ shared: HTTP2SharedFields = [:]) {
    self.shared = shared
  }

  /// Removes the fields of its own and keeps the memory.
  public mutating func begin(with shared: HTTP2SharedFields) {
    if self.shared !== shared { self.shared = shared }
    literals.removeAll(keepingCapacity: true)
    sharedPlace = 0
  }

  /// Adds a field. Pseudo-header fields must come before all others.
  @inlinable
  public mutating func add(_ name: HTTP2FieldName, _ value: some Collection<UInt8>) {
    add(name, count: value.count) { $0.append(copying: value) }
  }

  /// Adds a field whose value is text.
  public mutating func add(_ name: HTTP2FieldName, _ value: String) {
    add(name, value.utf8)
  }

  /// Adds a field whose value is written in place.
  ///
  /// - Parameter count: number of bytes that `value` appends.
  @inlinable
  public mutating func add(_ name: HTTP2FieldName, count: Int, writing value: (inout [UInt8]) -> Void) {
    let end = begin(name, count)
    value(&literals)
    precondition(literals.count == end, "a header field's value is longer or shorter than was said")
  }

  /// The fields as a server decodes them.
  public func decoded() -> HTTP2HeaderBlock {
    var encoder = HPACKEncoder()
    var bytes: [UInt8] = []
    encoder.append(self, to: &bytes)
    var block = HTTP2HeaderBlock()
    let outcome = unsafe bytes.withUnsafeBytes { bytes in
      unsafe HPACKDecoder().decode(bytes) { name, value in unsafe block.add(name: name, value: value) }
    }
    guard case .decoded = outcome else { preconditionFailure("a head that cannot be decoded") }
    return block
  }

  /// Begins a literal. Returns the position where its value must end.
  @usableFromInline
  mutating func begin(_ name: HTTP2FieldName, _ count: Int) -> Int {
    precondition(!name.isPseudo || literals.count == sharedPlace, "a pseudo-header field behind another field")
    literals.append(copying: name.literal)
    literals.appendHPACK(count, prefixBits: 7)
    let end = literals.count + count
    if name.isPseudo { sharedPlace = end }
    return end
  }
}

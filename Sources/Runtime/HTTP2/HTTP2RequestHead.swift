// The head of a request, encoded as far as it can be before a connection is known.
//
// Most of a head is the same in every request: those fields are told to a connection once and named by a byte each
// afterwards (`HPACKEncoder`). The rest comes once only and is kept out of the peer's table, where it would push out
// what comes again; as literals depend on nothing, they are written in their final form at once, without Huffman's code:
// tokens and ids gain a fifth by it and cost more than all the rest.

/// Header fields that many requests have in common. Compared by identity: make one for a kind of request, and keep it.
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

/// A head: fields in common and fields of its own. Made to be filled and filled again.
public struct HTTP2RequestHead: Sendable {
  public private(set) var shared: HTTP2SharedFields
  /// The fields of its own, as they go over the wire.
  @usableFromInline private(set) var literals: [UInt8] = []
  /// Where the shared fields stand among them: behind the pseudo-header fields.
  private(set) var sharedPlace = 0

  public init(_ shared: HTTP2SharedFields = [:]) {
    self.shared = shared
  }

  /// Forgets the fields of its own and keeps the memory.
  public mutating func begin(with shared: HTTP2SharedFields) {
    if self.shared !== shared { self.shared = shared }
    literals.removeAll(keepingCapacity: true)
    sharedPlace = 0
  }

  /// Adds a field; pseudo-header fields come before all others.
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
  /// - Parameter count: how many bytes `value` appends.
  @inlinable
  public mutating func add(_ name: HTTP2FieldName, count: Int, writing value: (inout [UInt8]) -> Void) {
    let end = begin(name, count)
    value(&literals)
    precondition(literals.count == end, "a header field's value is longer or shorter than was said")
  }

  /// The fields as a server gets them.
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

  /// Begins a literal; returns where its value has to end.
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

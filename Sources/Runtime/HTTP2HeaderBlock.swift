// The header fields of one request or response, in one piece of memory.

/// An ordered list of header fields whose bytes lie in one buffer; made to be filled, submitted and filled again.
public struct HTTP2HeaderBlock: Sendable {
  struct Field {
    var nameStart: Int32
    var nameLength: Int32
    var valueLength: Int32
    var isIndexed: Bool
  }

  private(set) var bytes: [UInt8] = []
  private(set) var fields: [Field] = []

  public init() {}

  public var count: Int { fields.count }
  public var isEmpty: Bool { fields.isEmpty }

  /// Forgets the fields and keeps the memory.
  public mutating func removeAll() {
    bytes.removeAll(keepingCapacity: true)
    fields.removeAll(keepingCapacity: true)
  }

  /// Adds a field.
  ///
  /// - Parameters:
  ///   - name: in lower case, as RFC 9113 §8.2.1 wants it.
  ///   - isIndexed: false keeps the field out of the HPACK table: right for values that do not come again.
  public mutating func add(_ name: StaticString, _ value: some Collection<UInt8>, isIndexed: Bool = true) {
    begin(name)
    bytes.append(contentsOf: value)
    end(isIndexed: isIndexed)
  }

  /// Adds a field whose value is text.
  public mutating func add(_ name: StaticString, _ value: String, isIndexed: Bool = true) {
    begin(name)
    bytes.append(contentsOf: value.utf8)
    end(isIndexed: isIndexed)
  }

  /// Adds a field whose value is a number in decimal digits.
  public mutating func add(_ name: StaticString, _ value: Int64, isIndexed: Bool = true) {
    add(name, String(value), isIndexed: isIndexed)
  }

  /// Adds a field whose value is written in place.
  public mutating func add(_ name: StaticString, isIndexed: Bool = true, writing value: (inout [UInt8]) -> Void) {
    begin(name)
    value(&bytes)
    end(isIndexed: isIndexed)
  }

  /// Adds a field whose name is not known beforehand.
  public mutating func add(name: some Collection<UInt8>, value: some Collection<UInt8>, isIndexed: Bool = true) {
    if fields.isEmpty { reserve() }
    fields.append(
      Field(
        nameStart: Int32(bytes.count), nameLength: Int32(name.count), valueLength: Int32(value.count),
        isIndexed: isIndexed))
    bytes.append(contentsOf: name)
    bytes.append(contentsOf: value)
  }

  /// The value of the first field of this name; nil when there is none.
  public subscript(name: StaticString) -> ArraySlice<UInt8>? {
    let wanted = unsafe UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
    for field in fields where Int(field.nameLength) == wanted.count {
      let nameEnd = Int(field.nameStart + field.nameLength)
      guard unsafe bytes[Int(field.nameStart)..<nameEnd].elementsEqual(wanted) else { continue }
      return bytes[nameEnd..<(nameEnd + Int(field.valueLength))]
    }
    return nil
  }

  /// The value of the first field of this name as text.
  public func text(_ name: StaticString) -> String? {
    self[name].map { String(decoding: $0, as: UTF8.self) }
  }

  /// How many fields have this name.
  public func count(of name: String) -> Int {
    var count = 0
    forEach { fieldName, _ in count += fieldName.elementsEqual(name.utf8) ? 1 : 0 }
    return count
  }

  /// Calls `body` with each field, in order.
  public func forEach(_ body: (_ name: ArraySlice<UInt8>, _ value: ArraySlice<UInt8>) -> Void) {
    for field in fields {
      let nameEnd = Int(field.nameStart + field.nameLength)
      body(bytes[Int(field.nameStart)..<nameEnd], bytes[nameEnd..<(nameEnd + Int(field.valueLength))])
    }
  }

  /// `:status` as a number; 0 when it is missing or not three digits.
  public var status: UInt16 {
    guard let value = self[":status"], value.count == 3 else { return 0 }
    return value.reduce(0) { $0 * 10 + UInt16($1 &- 48) % 10 }
  }

  /// Room for a usual head, so that a block that is used once grows once.
  private mutating func reserve() {
    bytes.reserveCapacity(256)
    fields.reserveCapacity(12)
  }

  private mutating func begin(_ name: StaticString) {
    fields.append(
      Field(
        nameStart: Int32(bytes.count), nameLength: Int32(name.utf8CodeUnitCount), valueLength: 0, isIndexed: true))
    unsafe bytes.append(contentsOf: UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
  }

  private mutating func end(isIndexed: Bool) {
    let last = fields.count - 1
    fields[last].valueLength = Int32(bytes.count) - fields[last].nameStart - fields[last].nameLength
    fields[last].isIndexed = isIndexed
  }
}

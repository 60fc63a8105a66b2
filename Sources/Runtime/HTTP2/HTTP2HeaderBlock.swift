// The header fields of one request or response, in one piece of memory.

/// An ordered list of header fields whose bytes are in one buffer. It is filled, submitted and filled again.
public struct HTTP2HeaderBlock: Sendable {
  @usableFromInline
  struct Field: Sendable {
    @usableFromInline var nameStart: Int32
    @usableFromInline var nameLength: Int32
    @usableFromInline var valueStart: Int32
    @usableFromInline var valueLength: Int32
    @usableFromInline var isIndexed: Bool
  }

  @usableFromInline var bytes: [UInt8] = []
  @usableFromInline var fields: [Field] = []

  public init() {}

  public var count: Int { fields.count }
  public var isEmpty: Bool { fields.isEmpty }
  /// Bytes of memory.
  var capacity: Int { bytes.capacity + fields.capacity * MemoryLayout<Field>.stride }

  /// Forgets the fields and keeps the memory.
  public mutating func removeAll() {
    bytes.removeAll(keepingCapacity: true)
    fields.removeAll(keepingCapacity: true)
  }

  /// Adds a field.
  ///
  /// - Parameters:
  ///   - name: in lower case, as RFC 9113 §8.2.1 requires.
  ///   - isIndexed: false keeps the field out of the HPACK table, for values that are not repeated.
  @inlinable
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
  @inlinable
  public mutating func add(_ name: StaticString, isIndexed: Bool = true, writing value: (inout [UInt8]) -> Void) {
    begin(name)
    value(&bytes)
    end(isIndexed: isIndexed)
  }

  /// Adds a field whose name is known only at run time.
  public mutating func add(name: some Collection<UInt8>, value: some Collection<UInt8>, isIndexed: Bool = true) {
    if fields.isEmpty { reserve() }
    let start = Int32(bytes.count)
    let nameLength = Int32(name.count)
    fields.append(
      Field(
        nameStart: start, nameLength: nameLength, valueStart: start + nameLength, valueLength: Int32(value.count),
        isIndexed: isIndexed))
    bytes.append(contentsOf: name)
    bytes.append(contentsOf: value)
  }

  /// The value of the first field of this name; nil if there is none.
  public subscript(name: StaticString) -> ArraySlice<UInt8>? {
    place(of: name).map { bytes[value(of: fields[$0])] }
  }

  /// The value of the first field of this name as text.
  public func text(_ name: StaticString) -> String? {
    self[name].map { String(decoding: $0, as: UTF8.self) }
  }

  /// Number of fields of this name.
  public func count(of name: String) -> Int {
    var count = 0
    forEach { fieldName, _ in count += fieldName.elementsEqual(name.utf8) ? 1 : 0 }
    return count
  }

  /// Calls `body` with each field, in order.
  public func forEach(_ body: (_ name: ArraySlice<UInt8>, _ value: ArraySlice<UInt8>) -> Void) {
    for field in fields {
      let nameEnd = Int(field.nameStart + field.nameLength)
      body(bytes[Int(field.nameStart)..<nameEnd], bytes[value(of: field)])
    }
  }

  /// `:status` as a number; 0 when it is missing or not three digits.
  public var status: UInt16 {
    guard let place = place(of: ":status"), fields[place].valueLength == 3 else { return 0 }
    var status: UInt16 = 0
    for index in value(of: fields[place]) {
      guard 0x30...0x39 ~= bytes[index] else { return 0 }
      status = status * 10 + UInt16(bytes[index] - 0x30)
    }
    return status
  }

  /// Whether `:status` is there once, before all other fields, and no other field's name begins with a colon
  /// (RFC 9113 §8.3).
  var isAnswerHead: Bool {
    guard place(of: ":status") == 0 else { return false }
    return !fields.dropFirst().contains { $0.nameLength > 0 && bytes[Int($0.nameStart)] == UInt8(ascii: ":") }
  }

  // MARK: - Storage

  /// The index of the first field of this name; nil if there is none.
  private func place(of name: StaticString) -> Int? {
    let count = name.utf8CodeUnitCount
    return unsafe bytes.withUnsafeBufferPointer { bytes in
      for place in fields.indices where Int(fields[place].nameLength) == count {
        let start = Int(fields[place].nameStart)
        var index = 0
        while index < count, unsafe bytes[start + index] == name.utf8Start[index] { index += 1 }
        if index == count { return place }
      }
      return nil
    }
  }

  private func value(of field: Field) -> Range<Int> {
    Int(field.valueStart)..<Int(field.valueStart + field.valueLength)
  }

  /// The size of a usual head, so that a block that is used once grows once.
  private mutating func reserve() {
    bytes.reserveCapacity(256)
    fields.reserveCapacity(12)
  }

  @usableFromInline
  mutating func begin(_ name: StaticString) {
    let start = Int32(bytes.count)
    let nameLength = Int32(name.utf8CodeUnitCount)
    fields.append(
      Field(
        nameStart: start, nameLength: nameLength, valueStart: start + nameLength, valueLength: 0, isIndexed: true))
    unsafe bytes.append(contentsOf: UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
  }

  @usableFromInline
  mutating func end(isIndexed: Bool) {
    let last = fields.count - 1
    fields[last].valueLength = Int32(bytes.count) - fields[last].valueStart
    fields[last].isIndexed = isIndexed
  }
}

// The parameters of one statement in Postgres' binary format, in one buffer.

internal import Runtime

/// A prepared statement. It is sent to a connection once and then executed by name.
public struct PostgresStatement: Sendable {
  let name: String
  let sql: String

  /// - Parameters:
  ///   - name: unique within the program.
  ///   - sql: one statement with `$1`… as parameters.
  public init(name: StaticString, sql: StaticString) {
    self.init(name: "\(name)", text: "\(sql)")
  }

  /// A statement whose text is made at run time. On a connection the same name must always have the same text.
  public init(name: String, text: String) {
    self.name = name
    self.sql = text
  }
}

/// Typed parameters in the order of `$1`, `$2`, ….
public struct PostgresParameters: Sendable {
  /// Object ids of the types we send (catalogue `pg_type`).
  enum TypeID: UInt32, Sendable {
    case bool = 16
    case int8 = 20
    case int2 = 21
    case int4 = 23
    case text = 25
    case tid = 27
    case timestamptz = 1184
    case boolArray = 1000
    case int2Array = 1005
    case int4Array = 1007
    case textArray = 1009
    case tidArray = 1010
    case int8Array = 1016
    case timestamptzArray = 1185
  }

  private(set) var types: [TypeID] = []
  private(set) var bytes: [UInt8] = []
  /// Where each parameter lies in `bytes`; nil for NULL.
  private(set) var ranges: [Range<Int>?] = []

  /// - Parameter capacity: how many bytes to reserve.
  public init(reservingCapacity capacity: Int = 0) {
    bytes.reserveCapacity(capacity)
  }

  public var count: Int { types.count }

  // MARK: Scalars

  public mutating func append(_ value: Bool) { append(.bool) { $0.append(value ? 1 : 0) } }
  public mutating func append(_ value: Int16) { append(.int2) { $0.appendBigEndian(value) } }
  public mutating func append(_ value: Int32) { append(.int4) { $0.appendBigEndian(value) } }
  public mutating func append(_ value: Int64) { append(.int8) { $0.appendBigEndian(value) } }

  /// UTF-8 text; nil is NULL.
  public mutating func append(_ value: String?) {
    guard let value else { return appendNull(.text) }
    append(.text) { $0.append(contentsOf: value.utf8) }
  }

  /// UTF-8 text.
  public mutating func append(text value: [UInt8]) {
    append(.text) { $0.append(contentsOf: value) }
  }

  /// An optional 32-bit integer; nil is NULL.
  public mutating func append(_ value: Int32?) {
    guard let value else { return appendNull(.int4) }
    append(value)
  }

  // MARK: Arrays

  public mutating func append(_ values: [Bool]) {
    append(integers: values, .boolArray, of: .bool) { $0 ? 1 as UInt8 : 0 }
  }
  public mutating func append(_ values: [Int16]) { append(int16s: values) { $0 } }
  public mutating func append(_ values: [Int32]) { append(int32s: values) { $0 } }
  public mutating func append(_ values: [Int64]) { append(int64s: values) { $0 } }

  /// 32-bit integers; nil is NULL.
  public mutating func append(_ values: [Int32?]) { append(int32s: values) { $0 } }

  /// Points in time, as microseconds since 1970; nil is NULL, `.min` is `-infinity`.
  public mutating func append(timestamps values: [Int64?]) { append(timestamps: values) { $0 } }

  /// UTF-8 texts; nil is NULL. A Postgres text cannot contain U+0000, so it is removed.
  public mutating func append(texts values: [[UInt8]?]) { append(texts: values) { $0 } }

  /// Texts; nil is NULL.
  public mutating func append(_ values: [String?]) { append(texts: values) { $0?.utf8 } }

  // MARK: Arrays of one property of each element; nil is NULL

  mutating func append<Element>(int16s elements: [Element], _ value: (Element) -> Int16?) {
    append(integers: elements, .int2Array, of: .int2, value)
  }

  mutating func append<Element>(int32s elements: [Element], _ value: (Element) -> Int32?) {
    append(integers: elements, .int4Array, of: .int4, value)
  }

  mutating func append<Element>(int64s elements: [Element], _ value: (Element) -> Int64?) {
    append(integers: elements, .int8Array, of: .int8, value)
  }

  /// As `append(timestamps:)`.
  mutating func append<Element>(timestamps elements: [Element], _ value: (Element) -> Int64?) {
    append(integers: elements, .timestamptzArray, of: .timestamptz) { element in
      value(element).map { $0 == .min || $0 == .max ? $0 : $0 &- PostgresResult.postgresEpochMicroseconds }
    }
  }

  /// Places of rows: 4 bytes of the block, 2 of the item in it.
  mutating func append<Element>(places elements: [Element], _ value: (Element) -> DeliveryPlace) {
    appendArray(.tidArray, of: .tid, elements) { element, bytes in
      let place = value(element)
      bytes.appendBigEndian(Int32(6))
      bytes.appendBigEndian(place.block)
      bytes.appendBigEndian(place.offset)
    }
  }

  /// As `append(texts:)`.
  mutating func append<Element, Text: Sequence<UInt8>>(texts elements: [Element], _ value: (Element) -> Text?) {
    appendArray(.textArray, of: .text, elements) { element, bytes in
      guard let text = value(element) else { return bytes.appendBigEndian(Int32(-1)) }
      let start = bytes.count
      bytes.appendBigEndian(Int32(0))
      bytes.append(contentsOf: text)
      if bytes[start + 4..<bytes.count].contains(0) {
        let clean = bytes[start + 4..<bytes.count].filter { $0 != 0 }
        bytes.replaceSubrange(start + 4..<bytes.count, with: clean)
      }
      let count = Int32(bytes.count - start - 4)
      for index in 0..<4 { bytes[start + index] = UInt8(truncatingIfNeeded: count >> (24 - 8 * index)) }
    }
  }

  // MARK: Helpers

  private mutating func append(_ type: TypeID, _ write: (inout [UInt8]) -> Void) {
    let start = bytes.count
    write(&bytes)
    types.append(type)
    ranges.append(start..<bytes.count)
  }

  private mutating func appendNull(_ type: TypeID) {
    types.append(type)
    ranges.append(nil)
  }

  private mutating func append<Element, Integer: FixedWidthInteger>(
    integers elements: [Element], _ type: TypeID, of elementType: TypeID, _ value: (Element) -> Integer?
  ) {
    appendArray(type, of: elementType, elements) { element, bytes in
      guard let integer = value(element) else { return bytes.appendBigEndian(Int32(-1)) }
      bytes.appendBigEndian(Int32(Integer.bitWidth / 8))
      bytes.appendBigEndian(integer)
    }
  }

  /// One-dimensional array: dimensions, null flag, element type, length, lower bound, then length-prefixed elements.
  private mutating func appendArray<Element>(
    _ type: TypeID, of elementType: TypeID, _ elements: [Element], _ write: (Element, inout [UInt8]) -> Void
  ) {
    append(type) { bytes in
      bytes.appendBigEndian(Int32(elements.isEmpty ? 0 : 1))
      bytes.appendBigEndian(Int32(1))
      bytes.appendBigEndian(elementType.rawValue)
      if elements.isEmpty { return }
      bytes.appendBigEndian(Int32(elements.count))
      bytes.appendBigEndian(Int32(1))
      for element in elements { write(element, &bytes) }
    }
  }
}

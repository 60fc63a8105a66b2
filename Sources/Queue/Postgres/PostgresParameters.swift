// The parameters of one statement in Postgres' binary format, in one buffer.

/// A prepared statement: sent once to a connection, executed by name from then on.
public struct PostgresStatement: Sendable {
  let name: String
  let sql: String

  /// - Parameters:
  ///   - name: unique within the program.
  ///   - sql: one statement with `$1`… as parameters.
  public init(name: StaticString, sql: StaticString) {
    self.init(name: "\(name)", text: "\(sql)")
  }

  /// A statement whose text is made at run time; the same name must always come with the same text on a connection.
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
    case timestamptz = 1184
    case int2Array = 1005
    case int4Array = 1007
    case textArray = 1009
    case int8Array = 1016
    case timestamptzArray = 1185
  }

  private(set) var types: [TypeID] = []
  private(set) var bytes: [UInt8] = []
  /// Where each parameter lies in `bytes`; nil for NULL.
  private(set) var ranges: [Range<Int>?] = []

  public init() {}

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

  public mutating func append(_ values: [Int16]) { append(array: values, .int2Array, of: .int2) }
  public mutating func append(_ values: [Int32]) { append(array: values, .int4Array, of: .int4) }
  public mutating func append(_ values: [Int64]) { append(array: values, .int8Array, of: .int8) }

  /// 32-bit integers; nil is NULL.
  public mutating func append(_ values: [Int32?]) {
    appendArray(.int4Array, of: .int4, values) { value, bytes in
      bytes.appendBigEndian(Int32(4))
      bytes.appendBigEndian(value)
    }
  }

  /// Points in time, as microseconds since 1970; nil is NULL, `.min` is `-infinity`.
  public mutating func append(timestamps values: [Int64?]) {
    appendArray(.timestamptzArray, of: .timestamptz, values) { value, bytes in
      let sincePostgresEpoch = value == .min ? .min : value - PostgresResult.postgresEpochMicroseconds
      bytes.appendBigEndian(Int32(8))
      bytes.appendBigEndian(sincePostgresEpoch)
    }
  }

  /// UTF-8 texts; nil is NULL. Postgres has no NUL in a text; one that came from a peer is left out.
  public mutating func append(texts values: [[UInt8]?]) {
    appendArray(.textArray, of: .text, values) { value, bytes in
      let text = value.contains(0) ? value.filter { $0 != 0 } : value
      bytes.appendBigEndian(Int32(text.count))
      bytes.append(contentsOf: text)
    }
  }

  /// Texts; nil is NULL.
  public mutating func append(_ values: [String?]) {
    append(texts: values.map { $0.map { Array($0.utf8) } })
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

  private mutating func append<Integer: FixedWidthInteger>(array: [Integer], _ type: TypeID, of element: TypeID) {
    appendArray(type, of: element, array) { value, bytes in
      bytes.appendBigEndian(Int32(Integer.bitWidth / 8))
      bytes.appendBigEndian(value)
    }
  }

  /// One-dimensional array: dimensions, null flag, element type, length, lower bound, then length-prefixed elements.
  private mutating func appendArray<Element>(
    _ type: TypeID, of element: TypeID, _ values: [Element?], _ write: (Element, inout [UInt8]) -> Void
  ) {
    append(type) { bytes in
      bytes.reserveCapacity(bytes.count + 20 + values.count * 12)
      bytes.appendBigEndian(Int32(values.isEmpty ? 0 : 1))
      bytes.appendBigEndian(Int32(1))
      bytes.appendBigEndian(element.rawValue)
      if values.isEmpty { return }
      bytes.appendBigEndian(Int32(values.count))
      bytes.appendBigEndian(Int32(1))
      for value in values {
        guard let value else {
          bytes.appendBigEndian(Int32(-1))
          continue
        }
        write(value, &bytes)
      }
    }
  }
}

extension [UInt8] {
  fileprivate mutating func appendBigEndian<Integer: FixedWidthInteger>(_ value: Integer) {
    var shift = Integer.bitWidth
    while shift > 0 {
      shift -= 8
      append(UInt8(truncatingIfNeeded: value >> shift))
    }
  }
}

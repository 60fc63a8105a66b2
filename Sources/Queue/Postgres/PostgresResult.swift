// The rows of one answer, read in place: libpq owns the memory until the last reference goes.

internal import CLibPQ

/// Rows in Postgres' binary format. Reading a column as another type than it has is a programming error and traps.
// @unchecked: a PGresult never changes once libpq has handed it out, and may be read from any thread (libpq manual, 34.20).
@safe public final class PostgresResult: @unchecked Sendable {
  /// 2000-01-01, Postgres' epoch, in microseconds since 1970.
  static let postgresEpochMicroseconds: Int64 = 946_684_800_000_000

  private let handle: OpaquePointer

  public let rowCount: Int
  public let columnCount: Int

  /// Takes ownership of a result.
  ///
  /// - Parameter handle: a `PGresult *` with its columns in binary format. Nothing else may clear or change it.
  public init(owning handle: OpaquePointer) {
    unsafe self.handle = unsafe handle
    rowCount = Int(unsafe PQntuples(handle))
    columnCount = Int(unsafe PQnfields(handle))
  }

  deinit {
    unsafe PQclear(handle)
  }

  public func isNull(_ row: Int, _ column: Int) -> Bool {
    unsafe PQgetisnull(handle, Int32(row), Int32(column)) != 0
  }

  public func bool(_ row: Int, _ column: Int) -> Bool { integer(row, column, as: UInt8.self) != 0 }
  public func int16(_ row: Int, _ column: Int) -> Int16 { integer(row, column, as: Int16.self) }
  public func int32(_ row: Int, _ column: Int) -> Int32 { integer(row, column, as: Int32.self) }
  public func int64(_ row: Int, _ column: Int) -> Int64 { integer(row, column, as: Int64.self) }

  /// A `timestamptz` as microseconds since 1970; the greatest number for infinity, the least for -infinity.
  public func timestamp(_ row: Int, _ column: Int) -> Int64 {
    let value = int64(row, column)
    return value == .min || value == .max ? value : value &+ Self.postgresEpochMicroseconds
  }

  public func double(_ row: Int, _ column: Int) -> Double {
    Double(bitPattern: integer(row, column, as: UInt64.self))
  }

  /// A `tid`, the place of a row.
  public func place(_ row: Int, _ column: Int) -> DeliveryPlace {
    let bytes = unsafe buffer(row, column)
    precondition(bytes.count == 6, "column \(column) is no tid")
    var number: UInt64 = 0
    for index in 0..<6 { number = unsafe number << 8 | UInt64(bytes[index]) }
    return DeliveryPlace(
      block: UInt32(truncatingIfNeeded: number >> 16), offset: UInt16(truncatingIfNeeded: number))
  }

  /// The bytes of a `text` or `bytea` column; empty for NULL.
  public func bytes(_ row: Int, _ column: Int) -> [UInt8] {
    unsafe Array(buffer(row, column))
  }

  /// The JSON text of a `jsonb` column, without the version byte of the binary format.
  public func json(_ row: Int, _ column: Int) -> [UInt8] {
    unsafe Array(buffer(row, column).dropFirst())
  }

  /// Number of bytes of a column in the binary format; nil for NULL.
  public func length(_ row: Int, _ column: Int) -> Int? {
    isNull(row, column) ? nil : unsafe buffer(row, column).count
  }

  /// The bytes of neighbouring columns, one after the other. A NULL column has none.
  public func bytes(_ row: Int, _ columns: Range<Int>) -> [UInt8] {
    var count = 0
    for column in columns { count += unsafe buffer(row, column).count }
    return unsafe Array(unsafeUninitializedCapacity: count) { target, filled in
      for column in columns {
        let source = unsafe buffer(row, column)
        guard let base = source.baseAddress, source.count > 0 else { continue }
        unsafe (target.baseAddress! + filled).update(from: base, count: source.count)
        filled += source.count
      }
    }
  }

  /// The text of a column; empty for NULL.
  public func text(_ row: Int, _ column: Int) -> String {
    unsafe String(decoding: buffer(row, column), as: UTF8.self)
  }

  private func buffer(_ row: Int, _ column: Int) -> UnsafeBufferPointer<UInt8> {
    precondition(row < rowCount && column < columnCount, "there is no such row or column in the result")
    let count = Int(unsafe PQgetlength(handle, Int32(row), Int32(column)))
    guard let base = unsafe PQgetvalue(handle, Int32(row), Int32(column)) else {
      return unsafe UnsafeBufferPointer(start: nil, count: 0)
    }
    return unsafe UnsafeBufferPointer(start: UnsafeRawPointer(base).assumingMemoryBound(to: UInt8.self), count: count)
  }

  private func integer<Integer: FixedWidthInteger>(_ row: Int, _ column: Int, as type: Integer.Type) -> Integer {
    let bytes = unsafe buffer(row, column)
    precondition(bytes.count == Integer.bitWidth / 8, "column \(column) does not have the width it is read with")
    return unsafe Integer(bigEndian: UnsafeRawPointer(bytes.baseAddress!).loadUnaligned(as: Integer.self))
  }
}

// Fast appending of bytes to byte arrays, which happens many times a request, and byte order marks.

extension [UInt8] {
  /// Appends the contiguous storage of a collection, if it has one. Appending the collection itself would count references to an
  /// array's storage.
  @inlinable
  public mutating func append(copying bytes: some Collection<UInt8>) {
    let isDone: Void? = bytes.withContiguousStorageIfAvailable { bytes in unsafe append(contentsOf: bytes) }
    if isDone == nil { append(contentsOf: bytes) }
  }

  /// Appends a part of an array in the same way.
  @inlinable
  public mutating func append(copying bytes: borrowing [UInt8], _ part: Range<Int>) {
    unsafe bytes.withUnsafeBufferPointer { bytes in
      unsafe append(contentsOf: UnsafeBufferPointer(rebasing: bytes[part]))
    }
  }
}

extension [UInt8] {
  /// Appends a whole number, most significant byte first. Byte by byte, as a call that copies so few takes three times as long.
  @inlinable
  public mutating func appendBigEndian<Integer: FixedWidthInteger>(_ value: Integer) {
    var shift = Integer.bitWidth
    while shift > 0 {
      shift -= 8
      append(UInt8(truncatingIfNeeded: value >> shift))
    }
  }
}

extension [UInt8] {
  /// The bytes without a byte order mark of UTF-8 at their beginning.
  public var withoutByteOrderMark: [UInt8] { starts(with: [0xEF, 0xBB, 0xBF]) ? Array(dropFirst(3)) : self }
}

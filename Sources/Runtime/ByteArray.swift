// Bytes appended to bytes, many times a request.

extension [UInt8] {
  /// Appends what a collection holds in one piece of memory, if it does: handed over as a collection, an array's reference
  /// would be counted there and back.
  @inlinable
  public mutating func append(copying bytes: some Collection<UInt8>) {
    let isDone: Void? = bytes.withContiguousStorageIfAvailable { bytes in unsafe append(contentsOf: bytes) }
    if isDone == nil { append(contentsOf: bytes) }
  }

  /// Appends a part of an array, likewise.
  @inlinable
  public mutating func append(copying bytes: borrowing [UInt8], _ part: Range<Int>) {
    unsafe bytes.withUnsafeBufferPointer { bytes in
      unsafe append(contentsOf: UnsafeBufferPointer(rebasing: bytes[part]))
    }
  }
}

/// The beginning of a handshake, without the rest.
public enum ClientHello {
  /// The header of a record of 512 bytes, and its first bytes.
  public static let beginning: [UInt8] =
    [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xFC, 0x03, 0x03] + Array(1...32)
}

// Ticket ids that contain their receipt, so that a simulator need not store tickets.

/// A ticket id is a version-7 UUID: milliseconds since 1970, the index of the receipt's error, the simulator's own
/// mark, and a serial number.
struct ExpoTicketMint: Sendable {
  /// Distinguishes this simulator's tickets from all others.
  private let mark: UInt64
  private var serial: UInt64 = 0

  init(mark: UInt32 = .random(in: 0..<(1 << 30))) {
    self.mark = UInt64(mark & 0x3FFF_FFFF)
  }

  /// A new id.
  /// - Parameters:
  ///   - error: the error in its receipt; nil for ok.
  ///   - now: microseconds since 1970.
  mutating func ticket(receipt error: ExpoPushError?, at now: Int64) -> [UInt8] {
    let place = error.flatMap { ExpoPushError.allCases.firstIndex(of: $0) }.map { UInt64($0 + 1) } ?? 0
    serial += 1
    var id: [UInt8] = []
    id.reserveCapacity(36)
    id.appendUUID(
      high: UInt64(now / 1_000) << 16 | 0x7000 | place, low: 2 << 62 | mark << 32 | serial & 0xFFFF_FFFF)
    return id
  }

  /// The content of a ticket id of this simulator.
  struct Ticket {
    /// When it was issued, in milliseconds since 1970.
    let issuedAt: Int64
    /// The receipt's error; nil for ok.
    let error: ExpoPushError?
  }

  /// Nil for an id that this simulator did not issue.
  func read(_ id: ArraySlice<UInt8>) -> Ticket? {
    guard id.isUUID else { return nil }
    let digits = String(decoding: id.filter { $0 != UInt8(ascii: "-") }, as: UTF8.self)
    guard let high = UInt64(digits.prefix(16), radix: 16), let low = UInt64(digits.suffix(16), radix: 16) else {
      return nil
    }
    guard low >> 32 == 2 << 30 | mark, low & 0xFFFF_FFFF <= serial, high >> 12 & 0xF == 7 else { return nil }
    let place = Int(high & 0xFFF)
    guard place <= ExpoPushError.allCases.count else { return nil }
    return Ticket(issuedAt: Int64(high >> 16), error: place == 0 ? nil : ExpoPushError.allCases[place - 1])
  }
}

// The tag of a request names its owner, so that several owners can use one provider, and what the owner knows it by.

/// The parts of `PushRequest.tag`.
public enum RequestTag {
  private static let slotBits: UInt64 = 40

  /// - Parameters:
  ///   - owner: the number of the owner; unique among those that share a provider, and less than 2^24.
  ///   - slot: the number of the request in the owner's table; less than 2^40.
  public static func make(owner: Int, slot: Int) -> UInt64 { UInt64(owner) << slotBits | UInt64(slot) }

  static func owner(of tag: UInt64) -> Int { Int(tag >> slotBits) }

  public static func slot(of tag: UInt64) -> Int { Int(tag & (1 << slotBits - 1)) }
}

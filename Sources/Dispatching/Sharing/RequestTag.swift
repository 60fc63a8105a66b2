// The tag of a request names its dispatcher, so that several dispatchers can use one provider, and the slot of its delivery.

/// The parts of `PushRequest.tag`.
enum RequestTag {
  private static let slotBits: UInt64 = 40

  /// - Parameters:
  ///   - dispatcher: the number of the dispatcher; unique among those that share a provider, and less than 2^24.
  ///   - slot: the slot of the delivery in the dispatcher's table.
  static func make(dispatcher: Int, slot: Int) -> UInt64 { UInt64(dispatcher) << slotBits | UInt64(slot) }

  static func dispatcher(of tag: UInt64) -> Int { Int(tag >> slotBits) }

  static func slot(of tag: UInt64) -> Int { Int(tag & (1 << slotBits - 1)) }
}

// A delivery and its settlement, for tests of the machine's memories.

import PushModel
import Queue
import Runtime

@testable import Dispatching

extension Delivery {
  /// A delivery of the call `call-<id>` with a payload of 4,000 bytes.
  static func part(_ id: Int64, _ kind: PushKind = .invite, pushNumber: Int32 = 0) -> Delivery {
    Delivery(
      lease: DeliveryLease(outboxID: id, pushNumber: pushNumber, lease: 1), lane: 1, attempt: 1, kind: kind,
      environment: .production, platform: .unknown, userID: [], token: Array("token".utf8), locale: nil, callKind: [],
      callID: Array("call-\(id)".utf8), payload: Array(repeating: 0x20, count: 4000), createdAtMicroseconds: 0,
      deadlineAtMicroseconds: 60_000_000, deadline: MachineRig.start + .seconds(60))
  }
}

extension Settlement {
  static func part(_ id: Int64, _ kind: PushKind = .invite) -> Settlement {
    Settlement(.part(id, kind), outcome: .delivered, attempts: 1, providerMessageID: "m\(id)")
  }
}

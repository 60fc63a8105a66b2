// From a claimed delivery to the body of its push.

import Dialects
import Providers
import PushModel
import Queue
import Runtime

enum PayloadSteps {
  static var all: [Step] {
    [
      step("payload.apns_invite", .apns, .invite), step("payload.fcm_invite", .fcm, .invite),
      step("payload.expo_invite", .expo, .invite), step("payload.fcm_cancel", .fcm, .cancel),
      step("payload.apns_missed_call", .apns, .missedCall),
    ]
  }

  private static let now = Instant(nanoseconds: 1_000_000_000)

  private static func step(_ name: String, _ provider: ProviderKind, _ kind: PushKind) -> Step {
    guard let dialect = try? ShippedDialects.named("intercom") else { preconditionFailure("no dialect intercom") }
    let planner = CallPlanner(dialect: dialect, provider: provider, appLocale: "pt-BR")
    let delivery = delivery(kind)
    return Step(name: name) { count in
      for tag in 0..<count {
        guard case .success(let request) = planner.plan(delivery, now: now, tag: UInt64(tag)) else {
          preconditionFailure("\(name) cannot be rendered")
        }
        keep(request)
      }
    }
  }

  private static func delivery(_ kind: PushKind) -> Delivery {
    let payload = """
      {"from": "5f0c9f6e-7a33-4f0e-9a4c-2a1f1a2b3c4d", "callId": "1c9d6f6a-11d4-4a7e-8a8e-b2d2f0a7c001", \
      "fromName": "Portaria \\"Sul\\"", "metadata": {"clientVersion": "1.4.2", "schemaVersion": 1}, \
      "channelName": "call-4711", "buildingName": "Edifício Aurora", "apartmentNumber": "101"}
      """
    return Delivery(
      lease: DeliveryLease(outboxID: 4711, pushNumber: 0, lease: 1), lane: 1, attempt: 1, kind: kind,
      environment: .production,
      platform: .ios, userID: Array("3b8a7c7e-6c2d-4a39-a4a8-3f2d5a1e9f00".utf8),
      token: Array(String(repeating: "0f", count: 32).utf8), locale: Array("pt-BR".utf8),
      callKind: Array("incoming_call".utf8), callID: Array("1c9d6f6a-11d4-4a7e-8a8e-b2d2f0a7c001".utf8),
      payload: Array(payload.utf8), createdAtMicroseconds: 1_750_000_000_000_000,
      deadlineAtMicroseconds: 1_750_000_060_000_000, deadline: now + .seconds(60))
  }
}

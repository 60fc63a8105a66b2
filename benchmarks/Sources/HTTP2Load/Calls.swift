// Deliveries as a claim returns them, each with its own call, user and token.

import PushModel
import Queue
import Runtime

enum Calls {
  /// The invite of one device; its token is the number in hexadecimal: not 0, which APNs and its simulator refuse.
  static func delivery(_ number: Int64, now: Instant) -> Delivery {
    let hexadecimal = String(number, radix: 16)
    let token = String(repeating: "0", count: 64 - hexadecimal.count) + hexadecimal
    let payload = """
      {"from": "5f0c9f6e-7a33-4f0e-9a4c-2a1f1a2b3c4d", "callId": "bench-\(number)", "fromName": "Portaria", \
      "metadata": {"clientVersion": "1.4.2", "schemaVersion": 1}, "channelName": "call-\(number)", \
      "buildingName": "Torre Norte", "apartmentNumber": "\(number % 500)"}
      """
    let createdAt = SystemClock().wallMilliseconds() * 1000
    return Delivery(
      lease: DeliveryLease(outboxID: number, pushNumber: 0, lease: 1), lane: 1, attempt: 1, kind: .invite,
      environment: .production,
      platform: .ios, userID: Array("ios-\(number)".utf8), token: Array(token.utf8), locale: nil,
      callKind: Array("incoming_call".utf8), callID: Array("bench-\(number)".utf8), payload: Array(payload.utf8),
      createdAtMicroseconds: createdAt, deadlineAtMicroseconds: createdAt + 600_000_000, deadline: now + .seconds(600))
  }
}

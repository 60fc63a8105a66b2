// Deliveries and rendered payloads for the tests of the dialects and of the planner.

import Dialects
import Foundation
import Providers
import PushModel
import Queue
import Runtime

/// A claimed delivery 60 s before its deadline.
public struct DeliveryFixture {
  public static let now = Instant(nanoseconds: 5_000_000_000_000)
  /// The time of the database's clock at `now`.
  public static let nowMilliseconds: Int64 = 1_750_000_000_000

  public var payload: [String: Any] = [
    "callId": "7d4e3a52-53cb-4a4e-9f0c-5d8a2f9d1c11", "from": "doorman-1", "fromName": "Portaria \"Sul\" é",
    "apartmentNumber": 101,
    "buildingName": "Edifício Aurora", "channelName": "call-101",
    "metadata": ["schemaVersion": 1, "clientVersion": NSNull()] as [String: Any], "doorCode": "A1", "floor": 10,
  ]
  public var userID = "user-1"
  public var platform = DevicePlatform.unknown
  public var environment = PushEnvironment.production
  public var kind = PushKind.invite
  public var callKind = "incoming_call"
  public var pushNumber: Int32 = 3
  public var isPaired = false
  public var secondsLeft: Int64 = 60
  public var locale: String?
  public var appLocale: String?
  public var unknownName: String?
  public var missedCallChannel: String?
  public var showsMessageText = false
  public var endReason: String?
  /// The recipient's own data: a JSON object of texts.
  public var recipientData: String?

  public init() {}

  public var callID: String { payload["callId"] as? String ?? "call-1" }

  public var delivery: Delivery {
    Delivery(
      lease: DeliveryLease(outboxID: 4711, pushNumber: pushNumber, lease: 1), lane: 1, attempt: 1, kind: kind,
      environment: environment, platform: platform, userID: Array(userID.utf8), token: Array("token".utf8),
      locale: locale.map { Array($0.utf8) }, data: recipientData.map { Array($0.utf8) },
      createdAtMicroseconds: (Self.nowMilliseconds - 5) * 1000,
      deadlineAtMicroseconds: (Self.nowMilliseconds + secondsLeft * 1000) * 1000,
      deadline: Self.now + .seconds(secondsLeft), isPaired: isPaired,
      call: CallData(
        callKind: Array(callKind.utf8), callID: Array(callID.utf8),
        payload: try! Array(JSONSerialization.data(withJSONObject: payload)),
        endReason: endReason.map { Array($0.utf8) }))
  }

  public func plan(_ dialect: String, _ provider: ProviderKind) throws -> PushRequest {
    let planner = CallPlanner(
      dialect: try ShippedDialects.named(dialect)!, provider: provider, appLocale: appLocale, unknownName: unknownName,
      missedCallChannel: missedCallChannel, showsMessageText: showsMessageText)
    return try planner.plan(delivery, now: Self.now, tag: 9).get()
  }

  /// The body as another JSON parser reads it.
  public func body(_ dialect: String, _ provider: ProviderKind) throws -> [String: Any] {
    try parse(Data(try plan(dialect, provider).body))
  }
}

public func parse(_ json: Data) throws -> [String: Any] {
  try JSONSerialization.jsonObject(with: json) as! [String: Any]
}

public func parse(_ json: Any?) throws -> [String: Any] {
  try parse(Data((json as! String).utf8))
}

/// The ways in which a text can be missing from a payload.
public enum MissingText: CaseIterable, Sendable {
  case absent, null, empty

  public var value: Any? {
    switch self {
    case .absent: nil
    case .null: NSNull()
    case .empty: ""
    }
  }
}

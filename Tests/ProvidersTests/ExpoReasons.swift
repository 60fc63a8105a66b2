// The error codes of Expo, once for all tests.

import Runtime

@testable import Providers

/// A row of the tables of docs/protocols.md §3.
struct ExpoReasonRow {
  var code: String
  /// The widest scope of the code.
  var scope: ReasonScope
  /// The status of a refused request; that of a ticket or receipt is 200.
  var status: UInt16
  /// The outcome of a push, in a request with one message. `Retry-After` is 7 if a request was refused.
  var outcome: PushOutcome

  init(_ code: String, _ scope: ReasonScope, status: UInt16 = 200, _ outcome: PushOutcome) {
    (self.code, self.scope, self.status, self.outcome) = (code, scope, status, outcome)
  }

  /// The errors of one push, in tickets and in receipts. Written by hand, so that it is independent of the tables in the sources.
  static let ofPushes = [
    Self("DeviceNotRegistered", .token, .tokenInvalid(reason: "DeviceNotRegistered", since: nil)),
    Self("MessageTooBig", .token, .rejected(reason: "MessageTooBig")),
    Self("MessageRateExceeded", .token, .throttled(reason: "MessageRateExceeded", after: nil, isLaneWide: false)),
    Self("MismatchSenderId", .platform, .rejected(reason: "MismatchSenderId")),
    Self("InvalidCredentials", .platform, .rejected(reason: "InvalidCredentials")),
    Self("DeveloperError", .token, .rejected(reason: "DeveloperError")),
    Self("ExpoError", .lane, .unavailable(reason: "ExpoError", after: nil)),
    Self("ProviderError", .lane, .unavailable(reason: "ProviderError", after: nil)),
  ]

  /// The errors of a whole request; with one message, those about several messages are final.
  static let ofRequests = [
    Self(
      "TOO_MANY_REQUESTS", .lane, status: 429,
      .throttled(reason: "TOO_MANY_REQUESTS", after: .seconds(7), isLaneWide: true)),
    Self(
      "PUSH_TOO_MANY_EXPERIENCE_IDS", .project, status: 400, .rejected(reason: "PUSH_TOO_MANY_EXPERIENCE_IDS")),
    Self("PUSH_TOO_MANY_NOTIFICATIONS", .lane, status: 400, .rejected(reason: "PUSH_TOO_MANY_NOTIFICATIONS")),
    Self("PUSH_TOO_MANY_RECEIPTS", .lane, status: 400, .rejected(reason: "PUSH_TOO_MANY_RECEIPTS")),
    Self("UNAUTHORIZED", .lane, status: 401, .unauthorized(reason: "UNAUTHORIZED")),
  ]
}

// The codes of FCM, once for all tests.

import Runtime

@testable import Providers

/// A row of the table of docs/protocols.md §2.
struct FCMReasonRow {
  var status: UInt16
  var code: String
  /// Whether the code is FcmError's.
  var isFCMError: Bool
  /// The widest scope of the code.
  var scope: ReasonScope
  /// The disposition of an answer without further details; nil if the details decide.
  var disposition: AnswerDisposition?

  init(
    _ status: UInt16, _ code: String, isFCMError: Bool, _ scope: ReasonScope, _ disposition: AnswerDisposition? = nil
  ) {
    (self.status, self.code, self.isFCMError, self.scope, self.disposition) =
      (status, code, isFCMError, scope, disposition)
  }

  /// Written by hand, so that it is independent of the table in the sources.
  static let documented = [
    Self(400, "INVALID_ARGUMENT", isFCMError: true, .token), Self(400, "INVALID_ARGUMENT", isFCMError: false, .token),
    Self(
      401, "THIRD_PARTY_AUTH_ERROR", isFCMError: true, .platform, .settle(.rejected(reason: "THIRD_PARTY_AUTH_ERROR"))),
    Self(401, "UNAUTHENTICATED", isFCMError: false, .lane, .renewToken),
    Self(
      403, "SENDER_ID_MISMATCH", isFCMError: true, .token,
      .settle(.tokenInvalid(reason: "SENDER_ID_MISMATCH", since: nil))),
    Self(
      403, "PERMISSION_DENIED", isFCMError: false, .lane, .settle(.unauthorized(reason: "PERMISSION_DENIED"))),
    Self(404, "UNREGISTERED", isFCMError: true, .token, .settle(.tokenInvalid(reason: "UNREGISTERED", since: nil))),
    Self(404, "NOT_FOUND", isFCMError: false, .lane, .settle(.unauthorized(reason: "NOT_FOUND"))),
    Self(429, "QUOTA_EXCEEDED", isFCMError: true, .lane),
    Self(
      429, "RESOURCE_EXHAUSTED", isFCMError: false, .lane,
      .settle(.throttled(reason: "RESOURCE_EXHAUSTED", after: nil, isLaneWide: false))),
    Self(500, "INTERNAL", isFCMError: true, .lane, .settle(.unavailable(reason: "INTERNAL", after: nil))),
    Self(503, "UNAVAILABLE", isFCMError: true, .lane, .settle(.unavailable(reason: "UNAVAILABLE", after: nil))),
  ]
}

// The outcome of one push at a provider. Every outcome is a value. Only programming errors are reported in other ways.

public import Runtime

/// The meaning of a provider's answer for one attempt. The tables in docs/protocols.md map answers to outcomes.
public enum PushOutcome: Sendable, Equatable {
  /// The provider accepted the push. This does not mean that the phone rang.
  case accepted(messageID: String?)
  /// The token is dead. `since` is the time since which it is dead, in milliseconds since 1970; nil if the provider named none.
  case tokenInvalid(reason: String, since: Int64?)
  /// Refused permanently: another attempt with the same request would be refused again.
  case rejected(reason: String)
  /// Too many pushes. `after` is the provider's Retry-After; nil if there was none. `isLaneWide`: whether the limit concerns all
  /// tokens.
  case throttled(reason: String, after: Nanoseconds?, isLaneWide: Bool)
  /// The provider has a temporary problem. Another attempt may succeed.
  case unavailable(reason: String, after: Nanoseconds?)
  /// Our credentials or configuration are not accepted: for no push of this lane until they are fixed, or for this token
  /// (`PushResult.concernsLane`).
  case unauthorized(reason: String)
  /// Certainly not processed. The push may be sent again at once, and this does not count as an attempt.
  case refused(reason: String)
  /// Certainly not sent. The push may be sent after this time, and this does not count as an attempt.
  case deferred(reason: String, after: Nanoseconds)
  /// The request was sent and no answer came. The phone may ring or not.
  case unknown(reason: String)
  /// The deadline passed before the request was sent.
  case expired

  /// The reason of `unknown` if the connection was lost while the request was in flight.
  public static let connectionLostReason = "ConnectionLost"

  /// Why the push was not accepted; nil if it was.
  public var failureReason: String? {
    switch self {
    case .accepted: nil
    case .tokenInvalid(let reason, _), .rejected(let reason), .throttled(let reason, _, _), .unavailable(let reason, _),
      .unauthorized(let reason), .refused(let reason), .deferred(let reason, _), .unknown(let reason):
      reason
    case .expired: "DeadlinePassed"
    }
  }

  /// For logs.
  public var word: String {
    switch self {
    case .accepted: "accepted"
    case .tokenInvalid: "token_invalid"
    case .rejected: "rejected"
    case .throttled: "throttled"
    case .unavailable: "unavailable"
    case .unauthorized: "unauthorized"
    case .refused: "refused"
    case .deferred: "deferred"
    case .unknown: "unknown"
    case .expired: "expired"
    }
  }
}

/// The outcome of one push with its times, as a provider reports it.
public struct PushResult: Sendable {
  /// The `tag` of the request.
  public var tag: UInt64
  public var outcome: PushOutcome
  /// The HTTP status; 0 if there was no answer.
  public var status: UInt16
  /// When the request was sent; nil if it was not sent.
  public var sentAt: Instant?
  /// When the outcome was known.
  public var answeredAt: Instant
  /// The number of the connection of the last try; nil if there was none or if it is not known. A number is never reused during
  /// the lifetime of the provider.
  public var connection: Int?
  /// Whether the push was sent a second time over another connection before the outcome was known.
  public var isHedged: Bool
  /// Whether the outcome says something about the whole lane. False if the token may be at fault: then `unavailable`, `unauthorized`
  /// and `unknown` must not stop the lane.
  public var concernsLane = true

  /// Whether the provider answered.
  public var isAnswered: Bool {
    switch outcome {
    case .accepted, .tokenInvalid, .rejected, .throttled, .unauthorized: sentAt != nil
    case .unavailable, .unknown: status != 0
    case .refused, .deferred, .expired: false
    }
  }

  public init(
    tag: UInt64, outcome: PushOutcome, status: UInt16 = 0, sentAt: Instant?, answeredAt: Instant,
    connection: Int? = nil, isHedged: Bool = false
  ) {
    self.tag = tag
    self.outcome = outcome
    self.status = status
    self.sentAt = sentAt
    self.answeredAt = answeredAt
    self.connection = connection
    self.isHedged = isHedged
  }
}

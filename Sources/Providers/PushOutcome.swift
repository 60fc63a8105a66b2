// What a provider said about one push. Outcomes are values: only programming errors are anything else.

public import Runtime

/// What the provider's answer means for one attempt (docs/protocols.md has the tables that lead here).
public enum PushOutcome: Sendable, Equatable {
  /// The provider took the push over. That is not "it rang".
  case accepted(messageID: String?)
  /// The token is dead. `since` is when the provider says it died, in milliseconds since 1970, where it says so.
  case tokenInvalid(reason: String, since: Int64?)
  /// Refused for good; another attempt with the same request would be refused again.
  case rejected(reason: String)
  /// Too fast. `after` is the provider's Retry-After; nil where it named none. `isLaneWide` when it holds for every token.
  case throttled(reason: String, after: Nanoseconds?, isLaneWide: Bool)
  /// The provider is in trouble; another attempt may succeed.
  case unavailable(reason: String, after: Nanoseconds?)
  /// Our credentials or configuration are not accepted: nothing in this lane will be until that is mended.
  case unauthorized(reason: String)
  /// Certainly not processed: may be sent again at once, and is no attempt.
  case refused(reason: String)
  /// The request left and no answer came: the phone may ring or not.
  case unknown(reason: String)
  /// The deadline passed before the request left.
  case expired

  /// The reason of `unknown` when the connection was lost with the request on it.
  public static let connectionLostReason = "ConnectionLost"
}

/// One outcome with its times, as it comes back from a provider.
public struct PushResult: Sendable {
  /// The `tag` of the request this answers.
  public var tag: UInt64
  public var outcome: PushOutcome
  /// The HTTP status; 0 where there was none.
  public var status: UInt16
  /// When the request left for the wire; nil if it never did.
  public var sentAt: Instant?
  /// When the outcome was known.
  public var answeredAt: Instant
  /// Which of the provider's connections carried the last try; nil where none did, or where it is not known. A number
  /// is not used again while the provider lives.
  public var connection: Int?
  /// It was sent once more over another connection before the outcome was known.
  public var isHedged: Bool

  /// The provider said something, whatever it was.
  public var isAnswered: Bool {
    switch outcome {
    case .accepted, .tokenInvalid, .rejected, .throttled, .unauthorized: sentAt != nil
    case .unavailable, .unknown: status != 0
    case .refused, .expired: false
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

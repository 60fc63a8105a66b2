// A fault that a simulator causes on purpose.

public import Runtime

/// What a simulator does instead of accepting a valid request, or in addition to it.
public struct Fault: Sendable, Equatable {
  public enum Effect: Sendable, Equatable {
    /// The request is answered as usual: for faults that only delay it or say GOAWAY.
    case accept
    /// Answered with a provider's error; `status` nil means the reason's own, `body` nil the provider's own.
    case answer(status: Int?, reason: String, body: String?)
    /// Expo: the ticket is ok, the receipt contains this error.
    case receipt(String)
    /// Neither accepted nor ever answered.
    case hang
    /// Not accepted. From this request on, the connection answers only PINGs.
    case deafen
    /// Accepted and logged, but never answered.
    case lose
    /// RST_STREAM (INTERNAL_ERROR), not accepted.
    case reset
    /// RST_STREAM (REFUSED_STREAM), not accepted.
    case refuse
    /// The connection is closed, the request not accepted.
    case close
    /// A GOAWAY with an earlier stream as the last one: neither this request nor any later one on the connection is
    /// accepted.
    case cutOff
    /// Half a body, not accepted.
    case malformed
    /// 502 with a page of HTML, as load balancers answer.
    case html
  }

  public var effect: Effect
  /// The delay of the answer.
  public var delay: Nanoseconds
  /// Seconds for a Retry-After header.
  public var retryAfter: Int?
  /// Maximum additional delay of the answer; the token determines the actual one.
  public var stallMax: Nanoseconds
  /// A GOAWAY frame is sent just before the answer.
  public var goesAway: Bool
  /// APNs: the time from which the token is dead, in milliseconds since 1970; nil for now.
  public var timestamp: Int64?

  public init(
    _ effect: Effect, delay: Nanoseconds = .zero, stallMax: Nanoseconds = .zero, retryAfter: Int? = nil,
    goesAway: Bool = false, timestamp: Int64? = nil
  ) {
    self.effect = effect
    self.delay = delay
    self.stallMax = stallMax
    self.retryAfter = retryAfter
    self.goesAway = goesAway
    self.timestamp = timestamp
  }

  /// The fault that answers with a provider's reason.
  public static func reason(_ reason: String, retryAfter: Int? = nil, timestamp: Int64? = nil) -> Fault {
    Fault(.answer(status: nil, reason: reason, body: nil), retryAfter: retryAfter, timestamp: timestamp)
  }

  /// The faults that every provider has besides its own reasons, by their names in tokens and rules.
  static func named(_ name: String) -> Fault? {
    switch name {
    case "hang": Fault(.hang)
    case "deafen": Fault(.deafen)
    case "lose": Fault(.lose)
    case "reset": Fault(.reset)
    case "refuse": Fault(.refuse)
    case "close": Fault(.close)
    case "malformed": Fault(.malformed)
    case "html": Fault(.html)
    case "slow": Fault(.accept, delay: .seconds(1))
    case "goaway": Fault(.accept, goesAway: true)
    case "cutoff": Fault(.cutOff)
    default: nil
    }
  }

  /// The names that `named` accepts, with their meanings. APNs tokens contain the index in this list, so add new names
  /// at the end.
  static let names: [(name: String, meaning: String)] = [
    ("hang", "not accepted, never answered"),
    ("lose", "accepted, never answered"),
    ("reset", "stream reset (INTERNAL_ERROR), not accepted"),
    ("refuse", "stream refused (REFUSED_STREAM), not accepted"),
    ("close", "connection closed, not accepted"),
    ("malformed", "500 with half a body"),
    ("html", "502 with a page of HTML"),
    ("slow", "accepted, answered after one second"),
    ("goaway", "accepted, with a GOAWAY just before the answer"),
    ("cutoff", "not accepted, with a GOAWAY that names an earlier stream as the last one"),
    ("deafen", "not accepted; from then on the connection answers only PINGs"),
  ]
}

extension Fault {
  /// The answer for effects that are the same at every provider; nil for `accept`, `answer`, `receipt` and `lose`.
  var commonAnswer: SimulatedAnswer? {
    var answer: SimulatedAnswer
    switch effect {
    case .accept, .answer, .receipt, .lose: return nil
    case .hang:
      answer = SimulatedAnswer(status: 0)
      answer.delivery = .never
    case .deafen:
      answer = SimulatedAnswer(status: 0)
      answer.delivery = .deafen
    case .reset:
      answer = SimulatedAnswer(status: 0)
      answer.delivery = .reset
    case .refuse:
      answer = SimulatedAnswer(status: 0)
      answer.delivery = .refuse
    case .close:
      answer = SimulatedAnswer(status: 0)
      answer.delivery = .close
    case .cutOff:
      answer = SimulatedAnswer(status: 0)
      answer.delivery = .cutOff
    case .malformed:
      answer = SimulatedAnswer(status: 500, contentType: .json, body: [UInt8]("{\"reason\":\"Inter"))
    case .html:
      answer = SimulatedAnswer(status: 502, contentType: .html, body: Self.page)
    }
    return finish(answer)
  }

  /// An answer with this fault's delay, Retry-After and loss.
  func finish(_ answer: SimulatedAnswer, goAwayReason: String? = nil) -> SimulatedAnswer {
    var answer = answer
    answer.delay = delay
    answer.retryAfter = retryAfter ?? answer.retryAfter
    if effect == .lose { answer.delivery = .never }
    if goesAway { answer.goAwayReason = goAwayReason ?? "" }
    return answer
  }

  /// The name under which a refusal by this fault is counted.
  var countedReason: String {
    switch effect {
    case .accept, .lose: "none"
    case .answer(_, let reason, _): reason
    case .receipt(let reason): reason
    case .hang: "hang"
    case .deafen: "deafen"
    case .reset: "reset"
    case .refuse: "refuse"
    case .close: "close"
    case .cutOff: "cutoff"
    case .malformed: "malformed"
    case .html: "html"
    }
  }

  private static let page = [UInt8](
    """
    <!DOCTYPE html>
    <html lang=en>
      <meta charset=utf-8>
      <title>Error 502 (Server Error)!!1</title>
      <p><b>502.</b> <ins>That’s an error.</ins>
      <p>The server encountered a temporary error and could not complete your request.<p>Please try again in 30 seconds.
    </html>
    """)
}

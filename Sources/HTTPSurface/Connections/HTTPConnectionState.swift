// State machine of one client connection: its limits of time and size, and when a refusal is sent.
//
// A request has one time limit, from its first byte to its last. When a limit is exceeded, the refusal is sent once,
// after the answers that are still owed. Then the connection lingers: the gateway sends nothing more, and for a while
// it reads and drops what the client sends. If the gateway closed at once, the system would discard the answer together
// with the unread bytes. Only a client that sends too many requests without waiting may miss the refusal, because
// reading all of them would take time from other clients. Pure: the handler reads clocks and writes.

/// The state of one connection.
struct HTTPConnectionState {
  /// The time limit that applies.
  enum Timer: Equatable {
    /// No limit, because the gateway is working on a request.
    case none
    /// From the first byte of a request to its last.
    case request
    /// Between requests, and before the first.
    case idle
    /// The client does not read the answers it has asked for.
    case unread
    /// After the last answer.
    case linger
  }

  enum Action: Equatable {
    case none
    /// Write this answer, then close our side.
    case refuse(APIProblem)
    /// Close our side.
    case finish
    /// Close everything.
    case close
  }

  private enum Reading: Equatable {
    case nothing
    case head
    case body(received: Int)
  }

  /// Maximum number of requests whose answers are owed. One read may contain thousands of requests, and a client that
  /// does not wait for answers would delay those of other clients.
  static let owedMax = 8

  private let bodyMaxBytes: Int
  private var reading = Reading.nothing
  /// Number of requests passed on whose answers have not been written.
  private var owed = 0
  private var isAnswerBegun = false
  /// A refusal, and the number of answers to send before it.
  private var refusal: (problem: APIProblem, ahead: Int)?
  private(set) var isLingering = false
  /// Whether the gateway no longer reads from the client, because the client sends requests without end.
  private(set) var isDeaf = false
  /// Whether the client has not read what was written.
  private var isBlocked = false

  init(bodyMaxBytes: Int) {
    self.bodyMaxBytes = bodyMaxBytes
  }

  /// Whether received bytes are still passed on.
  var isReading: Bool { refusal == nil && !isLingering }

  var timer: Timer {
    if isLingering { return .linger }
    if refusal == nil, reading != .nothing { return .request }
    // The answers before a refusal also have a time limit.
    if refusal != nil { return .unread }
    if owed > 0 { return isBlocked ? .unread : .none }
    return .idle
  }

  /// Whether the gateway works on exactly one request, so that the next step is the gateway's. A client that sends
  /// further requests before the answer could keep the gateway at work as long as it likes, so that does not count.
  var isWorking: Bool {
    guard !isLingering, !isBlocked, refusal == nil else { return false }
    if case .body = reading { return owed == 2 }
    return owed == 1
  }

  // MARK: - Events

  mutating func bytesArrived() {
    if reading == .nothing, isReading { reading = .head }
  }

  /// - Parameter length: the value of Content-Length; nil if there is none.
  mutating func headArrived(length: Int?) -> Action {
    guard isReading else { return .none }
    guard owed < Self.owedMax else {
      isDeaf = true
      return refuse(.tooManyUnanswered, ahead: owed)
    }
    if let length, length > bodyMaxBytes { return refuse(.tooLarge(limit: bodyMaxBytes), ahead: owed) }
    reading = .body(received: 0)
    owed += 1
    return .none
  }

  mutating func bodyArrived(_ count: Int) -> Action {
    guard isReading, case .body(let received) = reading else { return .none }
    reading = .body(received: received + count)
    return received + count > bodyMaxBytes ? refuse(.tooLarge(limit: bodyMaxBytes)) : .none
  }

  mutating func endArrived() {
    if isReading { reading = .nothing }
  }

  /// The connection is refused for a reason outside this state, such as too many connections.
  mutating func refused(_ problem: APIProblem) -> Action { isReading ? refuse(problem) : .none }

  /// - Parameter isBlocked: whether more bytes wait to be written than the channel's limit.
  mutating func writabilityChanged(isBlocked: Bool) { self.isBlocked = isBlocked }

  mutating func answerBegan() { isAnswerBegun = true }

  mutating func answerEnded() -> Action {
    isAnswerBegun = false
    owed -= 1
    guard let (problem, ahead) = refusal else { return .none }
    return refuse(problem, ahead: ahead - 1)
  }

  /// The answer that has just ended was the last of this connection. Closes at once if nothing more of the request is
  /// expected.
  mutating func shed() -> Action {
    guard !isLingering else { return .none }
    isLingering = true
    return reading == .nothing ? .close : .finish
  }

  mutating func timerFired() -> Action {
    switch timer {
    case .none: .none
    case .request: refuse(.tooSlow)
    case .idle, .unread, .linger: .close
    }
  }

  // MARK: - Refusing

  /// Refuses the request that is being read.
  private mutating func refuse(_ problem: APIProblem) -> Action {
    if case .body = reading { refuse(problem, ahead: owed - 1) } else { refuse(problem, ahead: owed) }
  }

  /// - Parameter ahead: number of answers to write before; negative if this request has been answered.
  private mutating func refuse(_ problem: APIProblem, ahead: Int) -> Action {
    if ahead > 0 {
      refusal = (problem, ahead)
      return .none
    }
    refusal = nil
    isLingering = true
    return ahead < 0 || isAnswerBegun ? .finish : .refuse(problem)
  }
}

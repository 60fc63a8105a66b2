// One connection of a client to the gateway as a state machine: how long it may take, how much it may send, and when it is told so.
//
// A request has one time limit, from its first byte to its last. What breaks a limit is answered once, in its turn behind
// the answers that are still owed, and then the connection lingers: our side says no more, what the client still sends is
// read and dropped for a while. Closing at once would make the system discard the answer together with what it has not
// read. Only who sends requests without end may miss it: reading those would take the time of others. Pure: the handler around it
// reads clocks and writes.

/// What a connection is doing.
struct HTTPConnectionState {
  /// Which time limit runs.
  enum Timer: Equatable {
    /// None: the gateway is working.
    case none
    /// From the first byte of a request to its last.
    case request
    /// Between requests, and before the first.
    case idle
    /// Answers are owed to a client that does not read those before.
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

  /// Requests whose answers are owed at a time. One read may hold thousands: whoever sends them without waiting for answers would keep
  /// the gateway from everybody else's.
  static let owedMax = 8

  private let bodyMaxBytes: Int
  private var reading = Reading.nothing
  /// Requests passed on whose answers have not been written.
  private var owed = 0
  private var isAnswerBegun = false
  /// A refusal, and how many answers go before it.
  private var refusal: (problem: APIProblem, ahead: Int)?
  private(set) var isLingering = false
  /// What the client still sends is not even read: there is no end to it.
  private(set) var isDeaf = false
  /// The client has not read what was written.
  private var isBlocked = false

  init(bodyMaxBytes: Int) {
    self.bodyMaxBytes = bodyMaxBytes
  }

  /// Whether what comes in is still passed on.
  var isReading: Bool { refusal == nil && !isLingering }

  var timer: Timer {
    if isLingering { return .linger }
    if refusal == nil, reading != .nothing { return .request }
    // Answers that go before a refusal have an end, too.
    if refusal != nil { return .unread }
    if owed > 0 { return isBlocked ? .unread : .none }
    return .idle
  }

  /// Whether the gateway works on one request: then the next step is its own, not the client's. A client that sends further
  /// requests before it has the answer could keep the gateway at work for as long as it likes: that does not count.
  var isWorking: Bool {
    guard !isLingering, !isBlocked, refusal == nil else { return false }
    if case .body = reading { return owed == 2 }
    return owed == 1
  }

  // MARK: - Events

  mutating func bytesArrived() {
    if reading == .nothing, isReading { reading = .head }
  }

  /// - Parameter length: what Content-Length says.
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

  /// The connection itself must not be.
  mutating func refused(_ problem: APIProblem) -> Action { isReading ? refuse(problem) : .none }

  /// - Parameter isBlocked: more waits to be written than the client has read for.
  mutating func writabilityChanged(isBlocked: Bool) { self.isBlocked = isBlocked }

  mutating func answerBegan() { isAnswerBegun = true }

  mutating func answerEnded() -> Action {
    isAnswerBegun = false
    owed -= 1
    guard let (problem, ahead) = refusal else { return .none }
    return refuse(problem, ahead: ahead - 1)
  }

  /// The answer that has ended was the last of this connection. At once, where nothing more of the request is to come.
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

  /// - Parameter ahead: answers to write before; negative if this request has been answered.
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

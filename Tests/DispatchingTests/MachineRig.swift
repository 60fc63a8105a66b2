// A machine with one lane, driven by a test: events in, actions out.

import Dialects
import Logging
import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching

struct MachineRig {
  static let lane: Int16 = 7
  static let start = Instant(nanoseconds: 1_000_000_000_000)
  /// The database's time at `start`.
  private static let startMicroseconds: Int64 = 1_750_000_000_000_000

  var machine: DispatcherMachine
  var now = MachineRig.start
  /// Actions that the test has not taken, without log lines.
  private(set) var actions: [DispatcherAction] = []
  /// Whether a sync succeeds at once.
  var syncs = true
  /// Whether look-ups are answered at once: the calls ring.
  var answersLookUps = false
  private(set) var lines: [(level: Logger.Level, message: Logger.Message, metadata: Logger.Metadata)] = []
  private var buffer: [DispatcherAction] = []

  init(
    isAtLeastOnce: Bool = false, provider: ProviderKind = .fcm, adjust: (inout DispatcherSettings) -> Void = { _ in }
  )
    throws
  {
    var settings = DispatcherSettings()
    adjust(&settings)
    let planner = CallPlanner(dialect: try #require(try ShippedDialects.named("intercom")), provider: provider)
    machine = DispatcherMachine(
      lanes: [
        LaneConfiguration(
          id: Self.lane, app: "porteiro", provider: provider, planner: planner, window: 2000,
          isAtLeastOnce: isAtLeastOnce)
      ], settings: settings, seed: 1)
  }

  /// A registered gateway with a usable provider that has asked for its first claim.
  static func open(
    isAtLeastOnce: Bool = false, provider: ProviderKind = .fcm, isListening: Bool = true, capacity: Int = 1000,
    adjust: (inout DispatcherSettings) -> Void = { _ in }
  ) throws -> MachineRig {
    var rig = try MachineRig(isAtLeastOnce: isAtLeastOnce, provider: provider, adjust: adjust)
    rig.hear(.provider(.capacity(capacity), lane: 0))
    if isListening { rig.hear(.outbox(.listening(true))) }
    rig.hear(.outbox(.available))
    rig.hear(.registered(.success(()), askedAt: rig.now))
    rig.answerHousekeeping()
    _ = rig.registers()
    return rig
  }

  /// Properties of the machine, separate because a failed expectation would print the whole machine.
  var isDrained: Bool { machine.isDrained }
  var isIdle: Bool { machine.isIdle }
  var counters: DispatcherCounters { machine.counters }
  var heldCount: Int { machine.held.count }
  var inFlight: Int { machine.conditions(now).first?.inFlight ?? -1 }

  // MARK: - Time and events

  mutating func hear(_ event: DispatcherEvent) {
    machine.handle(event, now)
    turn()
  }

  /// Time passes, and the machine has its turn.
  mutating func pass(_ duration: Nanoseconds) {
    now = now + duration
    turn()
  }

  mutating func turn() {
    machine.turn(now)
    collect()
    machine.sendClaimed(now)
    collect()
  }

  private mutating func collect() {
    machine.dequeue(into: &buffer)
    var isAnswered = false
    for action in buffer {
      switch action {
      case .log(let level, let message, let metadata): lines.append((level, message, metadata))
      case .sync where syncs:
        machine.handle(.synced(.success(())), now)
        isAnswered = true
      case .lookUpEnded where answersLookUps:
        machine.handle(.endedFound(.success(EndedRings())), now)
        isAnswered = true
      default: actions.append(action)
      }
    }
    if isAnswered {
      machine.turn(now)
      collect()
    }
  }

  /// Removes and returns the actions of one kind; the others stay.
  mutating func take<Found>(_ pick: (DispatcherAction) -> Found?) -> [Found] {
    let found = actions.compactMap(pick)
    actions.removeAll { pick($0) != nil }
    return found
  }

  mutating func clear() { actions = [] }

  // MARK: - Kinds of actions

  mutating func claims() -> [Int32] { take { if case .claim(let number, _, _) = $0 { number } else { nil } } }
  /// How many deliveries each claim of this turn may bring, by its number.
  mutating func allowances() -> [(number: Int32, limit: Int)] {
    take {
      if case .claim(let number, let allowances, _) = $0 {
        (number, allowances.reduce(0) { $0 + Int($1.limit) })
      } else {
        nil
      }
    }
  }
  mutating func forgets() -> [Int32] { take { if case .forget(let number) = $0 { number } else { nil } } }
  mutating func beats() -> [Bool] { take { if case .beat(let mayReap) = $0 { mayReap } else { nil } } }
  mutating func registers() -> Int { take { if case .register = $0 { true } else { nil } }.count }
  /// Their provider writes them at once.
  mutating func sends() -> [PushRequest] {
    let requests = take { if case .send(_, let requests) = $0 { requests } else { nil } }.flatMap(\.self)
    for request in requests { request.leftAt = now }
    return requests
  }
  mutating func withdrawals() -> Set<UInt64> {
    Set(take { if case .withdraw(_, let tags, _) = $0 { tags } else { nil } }.flatMap(\.self))
  }
  mutating func lookUps() -> [[Int64]] { take { if case .lookUpEnded(let calls) = $0 { calls.sorted() } else { nil } } }
  mutating func syncCount() -> Int { take { if case .sync = $0 { true } else { nil } }.count }
  mutating func scans() -> [Int64?] { take { if case .scan(let page) = $0 { .some(page) } else { nil } } }
  mutating func followUps() -> [JobKind] { take { if case .followUp(let kind, _) = $0 { kind } else { nil } } }
  mutating func permits() -> [Instant] { take { if case .permit(let until) = $0 { until } else { nil } } }
  mutating func settlements() -> [(batch: Int, settlements: [Settlement])] {
    take { if case .write(let batch, .settle(let settlements)) = $0 { (batch, settlements) } else { nil } }
  }
  mutating func questions() -> [(batch: Int, settlements: [Settlement])] {
    take { if case .write(let batch, .settledAmong(let settlements)) = $0 { (batch, settlements) } else { nil } }
  }
  /// Those that are not releases.
  mutating func parkings() -> [(batch: Int, parkings: [Parking])] {
    take { action -> (Int, [Parking])? in
      guard case .write(let batch, .park(let parkings)) = action, parkings.contains(where: { $0.delay != nil }) else {
        return nil
      }
      return (batch, parkings)
    }
  }
  mutating func releases() -> [(batch: Int, leases: [DeliveryLease])] {
    take { action -> (Int, [DeliveryLease])? in
      guard case .write(let batch, .park(let parkings)) = action, parkings.allSatisfy({ $0.delay == nil }) else {
        return nil
      }
      return (batch, parkings.map(\.lease))
    }
  }
  mutating func disowned() -> [(batch: Int, leases: [DeliveryLease])] {
    take { if case .write(let batch, .disown(let leases)) = $0 { (batch, leases) } else { nil } }
  }

  // MARK: - The store's answers

  /// Answers periodic statements: jobs, reports, look-ups and scans that find nothing.
  mutating func answerHousekeeping() {
    for action in take({ action -> DispatcherAction? in
      switch action {
      case .claimJob, .report, .lookUpEnded, .scan, .followUp: action
      default: nil
      }
    }) {
      switch action {
      case .claimJob(let kind): hear(.jobClaimed(kind, .success(nil)))
      case .report: hear(.reported(.success(())))
      case .lookUpEnded: hear(.endedFound(.success(EndedRings())))
      case .followUp(let kind, _): hear(.followedUp(kind, .success(0)))
      default: hear(.scanned(.success(ClaimedPage(leases: [], next: nil))))
      }
    }
  }

  /// Confirms each heartbeat of the machine.
  mutating func beat() {
    for _ in beats() { hear(.beaten(.success(true), askedAt: now)) }
  }

  /// Time passes in steps, and every beat is confirmed.
  mutating func live(_ duration: Nanoseconds, step: Nanoseconds = .milliseconds(100)) {
    let end = now + duration
    while now < end {
      pass(step)
      beat()
      answerHousekeeping()
    }
  }

  /// The pending claim returns these deliveries.
  mutating func bring(_ deliveries: [Delivery]) throws {
    let number = try #require(claims().last)
    hear(.claimed(number: number, .success(Claimed(deliveries: deliveries.map { $0.claimed(by: number) }))))
  }

  /// The provider answers everything that was sent.
  mutating func answer(
    _ requests: [PushRequest], _ outcome: PushOutcome = .accepted(messageID: "m"), concernsLane: Bool = true
  ) {
    hear(
      .provider(
        .results(
          requests.map {
            let status: UInt16 = if case .unknown = outcome { 0 } else { 200 }
            var result = PushResult(tag: $0.tag, outcome: outcome, status: status, sentAt: now, answeredAt: now)
            result.concernsLane = concernsLane
            return result
          }), lane: 0))
  }

  /// The claimed deliveries are sent, accepted, and settled.
  mutating func deliver(_ deliveries: [Delivery]) throws {
    try bring(deliveries)
    answer(sends())
    pass(.milliseconds(5))
    for (batch, settlements) in settlements() {
      hear(.written(batch: batch, .success(.count(settlements.count))))
    }
  }

  mutating func fail(claim number: Int32, _ code: OutboxError.Code) {
    hear(.claimed(number: number, .failure(OutboxError(code, "test"))))
  }

  // MARK: - Deliveries

  /// - Parameter life: which of several rows with these numbers it is.
  func delivery(
    _ outboxID: Int64, _ pushNumber: Int32 = 0, kind: PushKind = .invite, lane: Int16 = MachineRig.lane,
    seconds: Int64 = 60, isOver: Bool = false, decliners: [String] = [], token: String? = nil,
    environment: PushEnvironment = .production, life: Int64 = 0
  ) -> Delivery {
    let payload = #"{"callId":"c\#(outboxID)","from":"doorman","fromName":"Portaria","message":"x","chatId":"1"}"#
    let deadline = now + .seconds(seconds)
    return Delivery(
      lease: DeliveryLease(
        outboxID: outboxID, pushNumber: pushNumber, lease: 0, createdAtMicroseconds: life),
      place: DeliveryPlace(block: UInt32(truncatingIfNeeded: outboxID), offset: UInt16(pushNumber)), lane: lane,
      attempt: 1,
      kind: kind, environment: environment, platform: .android, userID: Array("u".utf8),
      token: Array((token ?? "token-\(outboxID)-\(pushNumber)").utf8),
      locale: nil, createdAtMicroseconds: Self.startMicroseconds,
      deadlineAtMicroseconds: Self.startMicroseconds + (deadline - Self.start).microseconds, deadline: deadline,
      call: CallData(
        callKind: Array((kind == .notification ? "message" : "incoming_call").utf8), callID: Array("c\(outboxID)".utf8),
        payload: Array(payload.utf8), isOver: isOver, decliners: Set(decliners.map { Array($0.utf8) })))
  }
}

extension Delivery {
  /// The same, as the result of a claim.
  func claimed(by number: Int32) -> Delivery { copy(lease: number, attempt: attempt) }

  /// The same, as the next claim brings it after so many attempts.
  func attempted(_ attempts: Int32) -> Delivery { copy(lease: lease.lease, attempt: attempts + 1) }

  private func copy(lease: Int32, attempt: Int32) -> Delivery {
    Delivery(
      lease: DeliveryLease(key, lease: lease), place: place, lane: lane,
      attempt: attempt, kind: kind, environment: environment, platform: platform,
      createdAtMicroseconds: createdAtMicroseconds, deadlineAtMicroseconds: deadlineAtMicroseconds, deadline: deadline,
      call: call, texts: texts, bytes: bytes)
  }
}

extension OutboxError {
  static func test(_ code: Code) -> OutboxError { OutboxError(code, "test") }
}

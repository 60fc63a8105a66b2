// What the conformance suite of `OutboxStore` needs of a store: a server with an outbox, gateways on it, a backend that fills it.

public import PushModel
public import Queue
public import Runtime

/// A row of `push.delivery`: a push that is still owed.
public struct OwedDelivery: Sendable, Equatable {
  public enum State: Sendable, Equatable {
    /// It may be claimed.
    case ready
    /// A gateway has it, by the claim of this number.
    case claimed(lease: Int32)
    /// It was parked, or waits for its call's end to be decided.
    case waiting
  }

  public var key: DeliveryKey
  public var kind: PushKind
  public var state: State
  /// Attempts counted so far; a claim counts one.
  public var attempts: Int32
  /// How many gateways died while they had it.
  public var crashes: Int

  public init(key: DeliveryKey, kind: PushKind, state: State, attempts: Int32, crashes: Int) {
    self.key = key
    self.kind = kind
    self.state = state
    self.attempts = attempts
    self.crashes = crashes
  }
}

/// A row of `push.history`: how a push ended.
public struct EndedDelivery: Sendable, Equatable {
  public var key: DeliveryKey
  public var outcome: DeliveryOutcome
  public var attempts: Int32
  public var reason: String?

  public init(key: DeliveryKey, outcome: DeliveryOutcome, attempts: Int32, reason: String?) {
    self.key = key
    self.outcome = outcome
    self.attempts = attempts
    self.reason = reason
  }
}

/// A server with an empty outbox, as the conformance suite sees it. Each rule gets one of its own.
///
/// The server's clock may be a real one: rules allow some seconds for what they do, and use `advance` to let longer times pass.
public protocol OutboxUnderTest: Sendable {
  /// Two lanes of different apps, unlike in nothing else.
  var lanes: [Int16] { get }

  /// A new gateway whose connections are up. It has not registered.
  func makeGateway() async throws -> any OutboxStore
  /// Enqueues a call (`.invite`) or a notification (`.notification`) for new devices, as a backend does.
  ///
  /// - Parameters:
  ///   - lane: one of `lanes`.
  ///   - seconds: until its deadline: a call's ring window, 1 to 600, or a notification's time to live.
  /// - Returns: its number; the pushes count from 0.
  func enqueue(_ kind: PushKind, lane: Int16, devices: Int, seconds: Int) async throws -> Int64
  /// Ends a call, as a backend does. What was never tried becomes void; whoever heard of the call is told of its end.
  func end(_ outboxID: Int64) async throws
  /// Whether visible pushes of unknown fate are repeated in the app of this lane.
  func setAtLeastOnce(_ isAtLeastOnce: Bool, lane: Int16) async throws

  /// What is owed, in the order of the keys.
  func owed() async throws -> [OwedDelivery]
  /// What has ended, in the order of the keys.
  func ended() async throws -> [EndedDelivery]

  /// Lets time pass on the server for everything it remembers a time of: deadlines come nearer, gateways were silent for longer.
  func advance(by duration: Nanoseconds) async throws
  /// The server crashes and comes back, and has lost what gateways committed asynchronously while `body` ran. Returns when all
  /// gateways have their connections back.
  func crash(losing body: () async throws -> Void) async throws
}

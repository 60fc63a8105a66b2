// The interface that the conformance suite of `OutboxStore` uses: a server with an outbox, gateways on it, and a
// backend that enqueues calls.

public import PushModel
public import Queue
public import Runtime

/// A row of `push.delivery`: a push that is still owed.
public struct OwedDelivery: Sendable, Equatable {
  public enum State: Sendable, Equatable {
    /// It may be claimed.
    case ready
    /// A gateway has claimed it, with this claim number.
    case claimed(lease: Int32)
    /// It was parked, or waits because its call may be ending.
    case waiting
  }

  public var key: DeliveryKey
  public var kind: PushKind
  public var state: State
  /// Attempts counted so far; a claim counts one.
  public var attempts: Int32
  /// Number of gateways that died while they had it.
  public var crashes: Int

  public init(key: DeliveryKey, kind: PushKind, state: State, attempts: Int32, crashes: Int) {
    self.key = key
    self.kind = kind
    self.state = state
    self.attempts = attempts
    self.crashes = crashes
  }
}

/// A row of `push.history`: the outcome of a push.
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

/// A server with an empty outbox for the conformance suite. Each rule gets its own server.
///
/// The server's clock may be a real one: rules tolerate some seconds for their own work, and use `advance` for longer
/// times.
public protocol OutboxUnderTest: Sendable {
  /// Two lanes that differ only in their apps.
  var lanes: [Int16] { get }
  /// The time without a heartbeat after which a gateway is declared dead. It is long enough for a slow machine, which may take a third of
  /// it from one heartbeat of a rule to the next.
  var silence: Nanoseconds { get }

  /// A new gateway whose connections are up. It has not registered.
  func makeGateway() async throws -> any OutboxStore
  /// Enqueues a call (`.invite`) or a notification (`.notification`) for new devices, as a backend does.
  ///
  /// - Parameters:
  ///   - lane: one of `lanes`.
  ///   - seconds: the time to its deadline: a call's ring window, 1 to 600, or a notification's time to live.
  /// - Returns: push.outbox.id; its pushes are numbered from 0.
  func enqueue(_ kind: PushKind, lane: Int16, devices: Int, seconds: Int) async throws -> Int64
  /// Ends a call, as a backend does.
  func end(_ outboxID: Int64) async throws
  /// The user of the call's device with this index, which starts with 0, declines it.
  func decline(_ outboxID: Int64, device: Int) async throws
  /// Sets whether visible pushes with an unknown result are repeated in the app of this lane.
  func setAtLeastOnce(_ isAtLeastOnce: Bool, lane: Int16) async throws

  /// The owed deliveries, in the order of their keys.
  func owed() async throws -> [OwedDelivery]
  /// The ended deliveries, in the order of their keys.
  func ended() async throws -> [EndedDelivery]

  /// Makes time pass on the server for all stored times: deadlines come closer, gateways have been silent for longer.
  /// A negative time is given back: what was stored lies ahead.
  func advance(by duration: Nanoseconds) async throws
  /// The server crashes and restarts, and loses what gateways committed asynchronously while `body` ran. Returns when
  /// all gateways are connected again.
  func crash(losing body: () async throws -> Void) async throws
}

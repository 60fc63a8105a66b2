// A delivery on its way back to the outbox.

public import Runtime

/// A claimed delivery that goes back to the outbox: parked until its next try, handed on to other gateways, or released as if it had
/// never been claimed.
public struct Parking: Sendable {
  public var lease: DeliveryLease
  /// Number of attempts from now on; nil: the attempt of the claim is taken back.
  public var attempts: Int32?
  /// When to try again, from now; nil: it is ready at once.
  public var delay: Nanoseconds?
  /// Whether gateways that have not handed it on may claim it at once; otherwise it is parked.
  public var isHandedOn = false
  /// Why the last attempt failed; nil if there was none.
  public var reason: String?
  /// The tries made under this lease, all of which failed.
  public var failures: [FailedAttempt]

  public init(
    lease: DeliveryLease, attempts: Int32, delay: Nanoseconds, isHandedOn: Bool = false, reason: String,
    failures: [FailedAttempt] = []
  ) {
    self.lease = lease
    self.attempts = attempts
    self.delay = delay
    self.isHandedOn = isHandedOn
    self.reason = reason
    self.failures = failures
  }

  /// Releases the delivery.
  public init(releasing lease: DeliveryLease) {
    self.lease = lease
    failures = []
  }
}

// The times and limits of a dispatcher.

public import Runtime

/// What `DispatcherMachine` goes by.
public struct DispatcherSettings: Sendable {
  public var policy = RetryPolicy()
  /// A gateway that was not heard of for so long is declared dead.
  public var silence = Nanoseconds.seconds(3)
  /// Between two beats.
  public var beatInterval = Nanoseconds.seconds(1)
  /// The part of `silence`, in percent, for which a confirmed beat lets requests leave.
  public var leasePercent: Int64 = 80
  /// Between two comparisons of what is claimed in our name with what is held.
  public var scanInterval = Nanoseconds.seconds(15)
  /// How long a settlement is remembered after it was written.
  public var rememberFor = Nanoseconds.seconds(30)
  /// The most settlements remembered.
  public var rememberedMax = 200_000
  /// The most memory for these.
  public var rememberedBytesMax = 40 << 20
  /// The most deliveries that one `reclaim` asks for.
  public var reclaimMax = 1_000
  /// Between two reports of the lanes' conditions.
  public var reportInterval = Nanoseconds.seconds(1)
  /// Between two looks for a maintenance job, when none was due.
  public var jobInterval = Nanoseconds.milliseconds(250)
  /// Between two look-ups of all invites held, while the ends of calls are not heard of.
  public var lookUpInterval = Nanoseconds.milliseconds(500)
  /// After a call of the store that failed.
  public var retryInterval = Nanoseconds.milliseconds(250)
  /// More deliveries that wait to be written stop the claims.
  public var backlogMax = 50_000
  /// For how long a row is put back that this version cannot use.
  public var unusableDelay = Nanoseconds.seconds(1)

  public init() {}

  /// For how long after it was asked a confirmed beat lets requests leave.
  public var leaseTime: Nanoseconds { silence * leasePercent / 100 }
}

// The times and limits of a dispatcher.

public import Runtime

/// The settings of `DispatcherMachine`.
public struct DispatcherSettings: Sendable {
  public var policy = RetryPolicy()
  /// The number of the dispatcher, which is part of the tags of its requests. Unique among the dispatchers that share a provider,
  /// and less than 2^24.
  public var number = 0
  /// A gateway that was silent for this long is declared dead.
  public var silence = Nanoseconds.seconds(3)
  /// The interval of beats.
  public var beatInterval = Nanoseconds.seconds(1)
  /// How long a confirmed beat allows requests to be sent, as a percentage of `silence`.
  public var leasePercent: Int64 = 80
  /// The interval at which the rows claimed in our name are compared with what is held.
  public var scanInterval = Nanoseconds.seconds(15)
  /// The interval of reports of the lanes' conditions.
  public var reportInterval = Nanoseconds.seconds(1)
  /// The wait before looking for a maintenance job again when none was due.
  public var jobInterval = Nanoseconds.milliseconds(250)
  /// The interval of look-ups of all held invites while hints are not heard. While they are heard, it is four times as long.
  public var lookUpInterval = Nanoseconds.milliseconds(500)
  /// The wait after a call of the store that failed.
  public var retryInterval = Nanoseconds.milliseconds(250)
  /// Maximum number of deliveries that wait to be written. Above it nothing is claimed.
  public var backlogMax = 50_000
  /// How long a row that this version cannot use is parked.
  public var unusableDelay = Nanoseconds.seconds(1)

  public init() {}

  /// How long a confirmed beat allows requests to be sent, from when it was sent.
  public var leaseTime: Nanoseconds { silence * leasePercent / 100 }
}

// The limits of a pool of HTTP/2 connections, and how long it waits before it connects again.

public import Runtime

/// Limits of one `HTTP2ConnectionPool`.
public struct HTTP2ConnectionPoolSettings: Sendable {
  /// Maximum number of connections that are connecting or ready. Draining connections are not counted.
  public var connectionsMax = 4
  /// Maximum number of extra connections that replace those whose health is in doubt.
  public var replacementsMax = 1
  /// How long a connection above `connectionsMax` stays, at least, after its last request. A provider that is slow now is so soon again.
  public var surplusTime = Nanoseconds.seconds(60)
  /// Maximum number of requests that wait for a stream. Further requests are refused at once.
  public var waitingMax = 4096
  /// Maximum time a request waits in the pool; its deadline may be sooner. After that it is refused, and its owner can retry it
  /// later or send it another way. A hedge waits as long as its request is in flight.
  public var waitTimeout = Nanoseconds.seconds(2)
  /// Whether a connection has only one stream until its first authorised answer (APNs with token authentication).
  public var probes = false
  /// If the request on that only stream has no answer after this time, another connection is opened for those that wait. Such connections
  /// do not count towards the maximum, until there are twice as many as it allows.
  public var probeTimeout = Nanoseconds.milliseconds(300)
  /// The same for a connection that is being made: if its first packets are lost, it may take seconds, while another is made at once.
  public var connectPatience = Nanoseconds.seconds(1)
  /// How long a connection gets no requests after it refused a stream without GOAWAY.
  public var refusalPause = Nanoseconds.milliseconds(100)
  /// A connection that lived at least this long was worth its handshake: the next may be opened at once.
  public var stableAfter = Nanoseconds.seconds(10)
  /// A connection that answered at least this number of requests was worth its handshake, too.
  public var answersWorthAConnection = 100
  /// How long the end of a connection that was not worth its handshake counts.
  public var earlyEndsWindow = Nanoseconds.seconds(120)
  /// If a connection was idle for at least this long, the peer closed it because it was idle.
  public var idleAfter = Nanoseconds.seconds(1)
  /// Maximum wait after the end of a connection that had answered all its requests. Jitter shortens it by up to half.
  public var idleEndWait = Nanoseconds.seconds(2)
  /// Maximum wait after a connection that was never ready. A call may be owed, and the network may be back at any time.
  public var unreadyEndWait = Nanoseconds.seconds(1)
  /// Maximum wait after the loss of a connection with a request in flight. Jitter shortens it by up to half.
  public var requestEndWait = Nanoseconds.milliseconds(500)
  public var backoff = ReconnectBackoff()
  public var connection = HTTP2ConnectionSettings()

  public init() {}
}

/// How long to wait before the next connection.
public struct ReconnectBackoff: Sendable {
  public var base = Nanoseconds.milliseconds(250)
  public var max: Nanoseconds

  public init(max: Nanoseconds = .seconds(15)) { self.max = max }

  /// The wait after this number of failures (`ReconnectLimiter` defines which ends count). It doubles with each failure. Jitter
  /// shortens it by up to half, so that replicas do not reconnect at the same time. With the default values:
  ///
  /// | failures | 0 | 1        | 2        | 3      | 4    | 5    | 6    | 7 and more |
  /// |----------|---|----------|----------|--------|------|------|------|------------|
  /// | at least | 0 | 125 ms   | 250 ms   | 500 ms | 1 s  | 2 s  | 4 s  | 7.5 s      |
  /// | at most  | 0 | 250 ms   | 500 ms   | 1 s    | 2 s  | 4 s  | 8 s  | 15 s       |
  ///
  /// - Parameter random: any number; it selects a wait between the two limits.
  public func delay(afterFailures failures: Int, random: UInt64) -> Nanoseconds {
    guard failures > 0 else { return .zero }
    let doublings = Swift.min(failures - 1, 32)
    let (grown, overflow) = base.count.multipliedReportingOverflow(by: 1 << Int64(doublings))
    let whole = overflow ? max.count : Swift.min(grown, max.count)
    guard whole > 1 else { return Nanoseconds(whole) }
    return Nanoseconds(whole - Int64(random % UInt64(whole / 2 + 1)))
  }
}

// The limits of a pool of HTTP/2 connections, and how long it waits before it connects again.

public import Runtime

/// Limits of one `HTTP2ConnectionPool`.
public struct HTTP2ConnectionPoolSettings: Sendable {
  /// Connections that take requests, or will when they are ready; those being drained are not counted.
  public var connectionsMax = 4
  /// Maximum number of extra connections that replace those whose health is in doubt.
  public var replacementsMax = 1
  /// How long a connection beyond `connectionsMax` stays after the last doubt.
  public var replacementTime = Nanoseconds.seconds(60)
  /// Requests that may wait for a stream; more come back as refused at once.
  public var waitingMax = 4096
  /// How long a request may stay in the pool without having been processed, if its deadline is not sooner. Then it
  /// comes back as refused, for its owner to put off or to send another way.
  public var waitTimeout = Nanoseconds.seconds(2)
  /// One stream only until a connection has given its first authorised answer (APNs with token authentication).
  public var probes = false
  /// How long a connection that refused a stream without GOAWAY is passed over.
  public var refusalPause = Nanoseconds.milliseconds(100)
  /// After an unresponsive connection was given up, the next one is given up only after this time, or after an answer on any
  /// connection.
  public var abandonInterval = Nanoseconds.seconds(30)
  /// A connection that lived at least this long was worth its handshake: the next may be opened at once.
  public var stableAfter = Nanoseconds.seconds(10)
  /// A connection that answered at least this number of requests was worth its handshake, too.
  public var answersWorthAConnection = 100
  /// How far back the ends of connections count that were not worth their handshake.
  public var earlyEndsWindow = Nanoseconds.seconds(120)
  /// A connection that was idle for at least this long was not closed because of what it did.
  public var idleAfter = Nanoseconds.seconds(1)
  /// The longest wait after a connection was closed that had answered all it was given; jitter takes away up to half.
  public var idleEndWait = Nanoseconds.seconds(2)
  /// The longest wait after a connection was lost with a request on it; jitter takes away up to half.
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

  /// The wait after this many failures (`ReconnectLimiter` says what counts). It doubles with each; jitter takes away up to half,
  /// so that replicas do not come back together. With the default values:
  ///
  /// | failures | 0 | 1        | 2        | 3      | 4    | 5    | 6    | 7 and more |
  /// |----------|---|----------|----------|--------|------|------|------|------------|
  /// | at least | 0 | 125 ms   | 250 ms   | 500 ms | 1 s  | 2 s  | 4 s  | 7.5 s      |
  /// | at most  | 0 | 250 ms   | 500 ms   | 1 s    | 2 s  | 4 s  | 8 s  | 15 s       |
  ///
  /// - Parameter random: any number; decides where between the two.
  public func delay(afterFailures failures: Int, random: UInt64) -> Nanoseconds {
    guard failures > 0 else { return .zero }
    let doublings = Swift.min(failures - 1, 32)
    let (grown, overflow) = base.count.multipliedReportingOverflow(by: 1 << Int64(doublings))
    let whole = overflow ? max.count : Swift.min(grown, max.count)
    guard whole > 1 else { return Nanoseconds(whole) }
    return Nanoseconds(whole - Int64(random % UInt64(whole / 2 + 1)))
  }
}

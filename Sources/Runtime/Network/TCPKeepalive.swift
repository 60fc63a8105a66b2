// TCP keepalive, which detects a lost peer and keeps NATs from forgetting an idle connection.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// TCP keepalive of one socket (tcp(7)).
///
/// With the default values an idle connection whose peer does not answer is closed after about 21 s, and a NAT that
/// forgets connections after 30 s sees a probe in time.
public struct TCPKeepalive: Sendable {
  /// Time of silence after which the peer is probed, in whole seconds.
  public var idle = Nanoseconds.seconds(15)
  /// The time between two probes, in whole seconds.
  public var interval = Nanoseconds.seconds(2)
  /// Number of unanswered probes that end the connection if there is no `unacknowledgedMax`.
  public var probesMax = 3
  /// A connection whose peer does not acknowledge what was sent for this time is closed (TCP_USER_TIMEOUT, Linux). It also
  /// bounds the time for which probes go unanswered, so it must be longer than `idle`, or one lost probe is enough.
  public var unacknowledgedMax = Nanoseconds.seconds(20)

  public init() {}

  /// Sets the options. None of them can fail for a TCP socket. A system that does not know an option keeps its default.
  public func apply(to socket: Int32) {
    Self.set(SOL_SOCKET, SO_KEEPALIVE, 1, socket)
    #if os(Linux)
    Self.set(Self.tcp, TCP_KEEPIDLE, seconds(idle), socket)
    Self.set(Self.tcp, TCP_USER_TIMEOUT, Int32(clamping: unacknowledgedMax.milliseconds), socket)
    #else
    Self.set(Self.tcp, TCP_KEEPALIVE, seconds(idle), socket)
    #endif
    Self.set(Self.tcp, TCP_KEEPINTVL, seconds(interval), socket)
    Self.set(Self.tcp, TCP_KEEPCNT, Int32(clamping: probesMax), socket)
  }

  private static let tcp = Int32(IPPROTO_TCP)

  private func seconds(_ time: Nanoseconds) -> Int32 { Int32(clamping: max(1, time.milliseconds / 1000)) }

  private static func set(_ level: Int32, _ option: Int32, _ value: Int32, _ socket: Int32) {
    var value = value
    unsafe setsockopt(socket, level, option, &value, socklen_t(MemoryLayout<Int32>.size))
  }
}

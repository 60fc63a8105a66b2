// How libcurl connects, and how long it waits.

public import Logging
public import Runtime

/// How a `CurlClient` connects.
public struct CurlConfiguration: Sendable {
  /// A PEM file of CA certificates believed besides the system's.
  public var caFile: String?
  /// What connections go through; nil: to the servers themselves. The environment's proxies never count.
  public var proxy: HTTPProxy?
  /// Told of proxies that make no tunnel; nil where whoever asks tells of failures.
  public var logger: Logger?
  public var connectionsPerHostMax = 6
  public var connectTimeout = Nanoseconds.seconds(5)
  /// Who looks names up, and what is known of their addresses.
  public var resolver = NameResolver.system
  public var addresses = AddressBook.shared
  /// From handing a request over to its answer.
  public var totalTimeout = Nanoseconds.seconds(15)
  public var responseSizeMax = 1 << 20
  /// A connection that was idle for longer is not used again; whole seconds, 0 for no limit.
  public var idleConnectionTimeMax = Nanoseconds.seconds(10)
  /// How long the first byte of an answer is waited for on a connection that is used again after a pause, counted from what was
  /// last received there for other requests. Its end is a time-out.
  public var firstByteTimeout = Nanoseconds.seconds(2)
  /// The same on a new connection, or one that is believed to work, for requests that are repeatable; not after two requests
  /// whose first byte did not come in time.
  public var newConnectionTimeout = Nanoseconds.seconds(5)
  /// From the first byte of an answer to its end. Its end is a time-out.
  public var answerTimeout = Nanoseconds.seconds(5)
  /// How much processor time a server may make libcurl take without a part of an answer, before its connections are closed.
  public var wasteMax = Nanoseconds.milliseconds(250)
  /// So long after the last byte of any answer a connection is believed to work.
  public var trustTime = Nanoseconds.seconds(1)
  /// Of the sockets. What the peer does not acknowledge for `unacknowledgedMax` is lost, however long an answer may take.
  public var keepalive: TCPKeepalive = {
    var keepalive = TCPKeepalive()
    keepalive.unacknowledgedMax = .seconds(5)
    return keepalive
  }()
  /// Number of requests after which the connections that carried them take no more. libcurl 7.88 resets every HTTP/2 stream once its
  /// answer is whole, and servers that defend themselves against rapid resets (CVE-2023-44487) hang up on a client after
  /// a thousand of them, with requests in flight.
  public var requestsBeforeRenewal = 500

  public init(caFile: String? = nil) {
    self.caFile = caFile
  }
}

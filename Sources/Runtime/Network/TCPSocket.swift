// Non-blocking TCP: a connection being made, and a listener.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Connecting without waiting.
public enum TCPSocket {
  #if os(Linux)
  private static let streamType = Int32(SOCK_STREAM.rawValue)
  #else
  private static let streamType = SOCK_STREAM
  #endif

  static func make(_ family: Int32) throws(FileDescriptor.SystemError) -> FileDescriptor {
    let raw = socket(family, streamType, 0)
    guard raw >= 0 else { throw FileDescriptor.SystemError(call: "socket") }
    let descriptor = FileDescriptor(owning: raw)
    try FileDescriptor.makeNonBlocking(raw)
    return descriptor
  }

  /// Starts a connection. The socket becomes writable when it is connected or has failed; `connectionError` tells which.
  ///
  /// - Parameter keepalive: nil for the system's own.
  public static func connect(
    to address: SocketAddress, keepalive: TCPKeepalive? = nil
  ) throws(FileDescriptor.SystemError) -> FileDescriptor {
    let descriptor = try make(address.family)
    keepalive?.apply(to: descriptor.rawValue)
    let status = unsafe address.withSockaddr { pointer, length in
      #if canImport(Glibc)
      unsafe Glibc.connect(descriptor.rawValue, pointer, length)
      #else
      unsafe Darwin.connect(descriptor.rawValue, pointer, length)
      #endif
    }
    guard status == 0 || errno == EINPROGRESS else { throw FileDescriptor.SystemError(call: "connect") }
    return descriptor
  }

  /// Why a connection failed; nil if it is connected.
  public static func connectionError(_ descriptor: FileDescriptor) -> FileDescriptor.SystemError? {
    var code: Int32 = 0
    var length = socklen_t(MemoryLayout<Int32>.size)
    guard unsafe getsockopt(descriptor.rawValue, SOL_SOCKET, SO_ERROR, &code, &length) == 0 else {
      return FileDescriptor.SystemError(call: "getsockopt")
    }
    return code == 0 ? nil : FileDescriptor.SystemError(call: "connect", code: code)
  }
}

/// A listening socket. Confined to its event loop from `start` to `close`.
public final class TCPListener {
  public let loop: EventLoop
  /// The port it listens on. If 0 was requested, the system has chosen it.
  public let port: UInt16
  private let socket: FileDescriptor
  private var watch: EventLoop.Watch?

  /// Binds and listens; connections are accepted after `start`.
  public init(on address: SocketAddress, loop: EventLoop) throws(FileDescriptor.SystemError) {
    let descriptor = try TCPSocket.make(address.family)
    var on: Int32 = 1
    unsafe setsockopt(descriptor.rawValue, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size))
    let status = unsafe address.withSockaddr { unsafe bind(descriptor.rawValue, $0, $1) }
    guard status == 0 else { throw FileDescriptor.SystemError(call: "bind \(address)") }
    guard listen(descriptor.rawValue, SOMAXCONN) == 0 else { throw FileDescriptor.SystemError(call: "listen") }
    self.loop = loop
    socket = descriptor
    port = SocketAddress.boundPort(of: descriptor.rawValue)
  }

  /// Accepts connections from now on; each is handed over non-blocking.
  public func start(_ accepted: @escaping (FileDescriptor) -> Void) {
    // The handler retains the socket, so that its number is not reused while the loop still watches it.
    watch = loop.watch(socket.rawValue, for: .readable) { [socket] _ in
      while true {
        let raw = accept(socket.rawValue, nil, nil)
        guard raw >= 0 else { return }  // EAGAIN: none is waiting; anything else concerns that one connection only
        let descriptor = FileDescriptor(owning: raw)
        guard (try? FileDescriptor.makeNonBlocking(raw)) != nil else { continue }
        accepted(descriptor)
      }
    }
  }

  /// Stops accepting. The socket closes with the listener.
  public func close() {
    if let watch { loop.unwatch(watch) }
    watch = nil
  }
}

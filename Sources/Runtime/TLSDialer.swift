// From a host name to an open TLS stream: resolve, then try one address after the other.

/// One attempt to reach a server. Confined to its event loop; kept alive by its owner until it is done.
final class TLSDialer: TLSStreamDelegate {
  /// No address is waited for longer while there are others to try.
  static let impatience = Nanoseconds.seconds(1)

  /// Finds the addresses of a host and comes back to the loop with them; `SocketAddress.resolve` unless told otherwise.
  typealias Resolver = (
    _ host: String, _ port: UInt16, _ loop: EventLoop,
    _ completion: @escaping @Sendable (Result<[SocketAddress], SocketAddress.ResolutionError>) -> Void
  ) -> Void

  private let host: String
  private let port: UInt16
  private let context: TLSContext
  private let addressTimeout: Nanoseconds
  private let keepalive: TCPKeepalive
  private let loop: EventLoop
  private let resolve: Resolver
  private var completion: ((Result<TLSStream, TLSError>) -> Void)?

  private var untried: ArraySlice<SocketAddress> = []
  private var address = ""
  private var socket: FileDescriptor?
  private var watch: EventLoop.Watch?
  private var stream: TLSStream?
  private var timer: EventLoop.Timer?

  /// - Parameters:
  ///   - addressTimeout: how long the last address may take from SYN to the end of the handshake.
  ///   - keepalive: of the sockets.
  ///   - completion: called once on the loop, unless `cancel` comes first.
  init(
    host: String, port: UInt16, context: TLSContext, addressTimeout: Nanoseconds,
    keepalive: TCPKeepalive = TCPKeepalive(), loop: EventLoop,
    resolve: @escaping Resolver = SocketAddress.resolve, completion: @escaping (Result<TLSStream, TLSError>) -> Void
  ) {
    self.host = host
    self.port = port
    self.context = context
    self.addressTimeout = addressTimeout
    self.keepalive = keepalive
    self.loop = loop
    self.resolve = resolve
    self.completion = completion
  }

  func start() {
    // The resolver's thread only carries the reference back; everything else happens on the loop.
    nonisolated(unsafe) let dialer = self
    resolve(host, port, loop) { result in
      unsafe dialer.resolved(result)
    }
  }

  /// Gives up without a word.
  func cancel() {
    completion = nil
    leaveAddress()
  }

  private func resolved(_ result: Result<[SocketAddress], SocketAddress.ResolutionError>) {
    guard completion != nil else { return }
    switch result {
    case .failure(let error): finish(.failure(TLSError(.connection, error.description)))
    case .success(let addresses):
      untried = addresses[...]
      tryNext(after: TLSError(.connection, "\(host) has no address"))
    }
  }

  private func tryNext(after error: TLSError) {
    leaveAddress()
    guard let next = untried.popFirst() else { return finish(.failure(error)) }
    address = next.description
    do {
      let socket = try TCPSocket.connect(to: next, keepalive: keepalive)
      self.socket = socket
      watch = loop.watch(socket.rawValue, for: .writable) { [weak self] _ in self?.connected() }
    } catch {
      return tryNext(after: TLSError(.connection, "\(host) (\(address)): \(error)"))
    }
    let timeout = untried.isEmpty ? addressTimeout : min(addressTimeout, Self.impatience)
    timer = loop.schedule(at: loop.now + timeout) { [weak self] in
      guard let self else { return }
      tryNext(after: TLSError(.connection, "\(host) (\(address)): no TLS connection within \(timeout.seconds) s"))
    }
  }

  private func connected() {
    guard let socket else { return }
    if let watch { loop.unwatch(watch) }
    watch = nil
    if let error = TCPSocket.connectionError(socket) {
      return tryNext(after: TLSError(.connection, "\(host) (\(address)): \(error)"))
    }
    do {
      let stream = try TLSStream(socket, context: context, host: host, loop: loop)
      self.stream = stream
      stream.delegate = self
      stream.start()
    } catch {
      finish(.failure(error))  // the host is no name to verify: no other address mends that
    }
  }

  private func leaveAddress() {
    timer?.cancel()
    timer = nil
    if let watch { loop.unwatch(watch) }
    watch = nil
    stream?.delegate = nil
    stream?.close()
    stream = nil
    socket = nil
  }

  private func finish(_ result: Result<TLSStream, TLSError>) {
    stream = nil
    leaveAddress()
    let completion = self.completion
    self.completion = nil
    completion?(result)
  }

  // MARK: - TLSStreamDelegate

  func streamDidOpen(_ stream: TLSStream) {
    finish(.success(stream))
  }

  func stream(_ stream: TLSStream, didCloseWith error: TLSError?) {
    let error = error ?? TLSError(.connection, "\(host) closed the connection during the TLS handshake")
    if error.code == .connection {
      tryNext(after: TLSError(.connection, "\(host) (\(address)): \(error)"))
    } else {
      tryNext(after: error)
    }
  }

  func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer) {}
  func streamDidProgress(_ stream: TLSStream) {}
}

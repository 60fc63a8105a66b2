// Opens a connection to a host name: resolves it, orders the addresses by earlier results, and races them.
//
// With a proxy it resolves the proxy's name and races the proxy's addresses. An attempt is open when CONNECT, and the TLS
// handshake with the host through the tunnel, are complete.

/// What a dialer has opened.
public struct DialedConnection {
  public enum Link {
    /// Connected, and not used yet.
    case tcp(FileDescriptor)
    /// The handshake is complete.
    case tls(TLSStream)
  }

  public let link: Link
  public let address: SocketAddress
  /// All addresses of the host, or of its proxy. The address of this connection comes first.
  public let addresses: [SocketAddress]
}

/// One attempt to reach a server, with or without TLS. Confined to its event loop. Its owner keeps it alive until it is done.
public final class AddressDialer {
  /// Maximum number of addresses that are tried.
  private static let addressesMax = 32

  private final class Attempt {
    let address: SocketAddress
    var socket: FileDescriptor?
    var watch: EventLoop.Watch?
    /// The tunnel that the proxy is asked for.
    var tunnel: ProxyTunnel?
    var stream: TLSStream?

    init(_ address: SocketAddress) { self.address = address }
  }

  private let host: String
  private let port: UInt16
  private let context: TLSContext?
  private let proxy: HTTPProxy?
  private let settings: AddressRace.Settings
  private let keepalive: TCPKeepalive
  private let loop: EventLoop
  private let resolver: NameResolver
  private let book: AddressBook
  private var completion: ((Result<DialedConnection, TLSError>) -> Void)?

  private var race: AddressRaceRunner?
  private var attempts: [Attempt] = []
  private var timer: EventLoop.Timer?
  private var lastError: TLSError

  /// - Parameters:
  ///   - context: nil for a connection without TLS.
  ///   - proxy: nil to connect to the host itself.
  ///   - settings: times of the race; `attemptTimeout` is from SYN to the end of the handshake, CONNECT included.
  ///   - keepalive: of the sockets.
  ///   - completion: called once on the loop, never inside `start`, unless `cancel` comes first.
  public init(
    host: String, port: UInt16, context: TLSContext?, proxy: HTTPProxy? = nil,
    settings: AddressRace.Settings = AddressRace.Settings(), keepalive: TCPKeepalive = TCPKeepalive(), loop: EventLoop,
    resolver: NameResolver = .system, book: AddressBook = .shared,
    completion: @escaping (Result<DialedConnection, TLSError>) -> Void
  ) {
    self.host = host
    self.port = port
    self.context = context
    self.proxy = proxy
    self.settings = settings
    self.keepalive = keepalive
    self.loop = loop
    self.resolver = resolver
    self.book = book
    self.completion = completion
    lastError = TLSError(.connection, "\(proxy.map { "the proxy \($0)" } ?? host) has no address")
  }

  /// The name of a server in the address book.
  public static func bookName(_ host: String, _ port: UInt16) -> String { "\(host):\(port)" }

  public func start() {
    resolver.resolve(hop.host, port: hop.port, on: loop) { [self] outcome in resolved(outcome) }
  }

  /// The host whose addresses are raced.
  private var hop: (host: String, port: UInt16) { proxy.map { ($0.host, $0.port) } ?? (host, port) }
  private var hopBookName: String { Self.bookName(hop.host, hop.port) }

  /// Gives up without calling `completion`.
  public func cancel() {
    completion = nil
    leaveAll()
  }

  private func resolved(_ outcome: NameResolver.Outcome) {
    guard completion != nil else { return }
    switch outcome {
    case .failure(let error):
      finish(.failure(TLSError(.name, "\(proxy == nil ? "" : "the proxy: ")\(error.description)")))
    case .success(let addresses):
      let order = book.order(
        addresses.map { ($0.description, $0.isIPv6) }, of: hopBookName, now: loop.now)
      attempts = order.prefix(Self.addressesMax).map { Attempt(addresses[$0]) }
      race = AddressRaceRunner(count: attempts.count, settings: settings) { [unowned self] in perform($0) }
      handle(.started)
    }
  }

  private func handle(_ event: AddressRace.Event) { race?.handle(event, now: loop.now) }

  private func perform(_ action: AddressRace.Action) {
    guard completion != nil else { return }
    switch action {
    case .attempt(let place): begin(place)
    case .abandon(let place): leave(place)
    case .timeOut(let place):
      let time = settings.attemptTimeout.seconds
      note(
        place,
        attempts[place].tunnel == nil
          ? TLSError(.connection, "no \(context == nil ? "" : "TLS ")connection within \(time) s")
          : error(of: .silent(seconds: time), at: place))
      leave(place)
    case .wake(let instant):
      timer?.cancel()
      timer = loop.schedule(at: instant) { [weak self] in self?.handle(.woken) }
    case .finish(let winner):
      guard let winner else { return finish(.failure(lastError)) }
      open(attempts[winner])
    }
  }

  private func begin(_ place: Int) {
    let attempt = attempts[place]
    do {
      let socket = try TCPSocket.connect(to: attempt.address, keepalive: keepalive)
      attempt.socket = socket
      attempt.watch = loop.watch(socket.rawValue, for: .writable) { [weak self] _ in self?.connected(place) }
    } catch {
      fail(place, TLSError(.connection, "\(error)"))
    }
  }

  private func connected(_ place: Int) {
    let attempt = attempts[place]
    guard let socket = attempt.socket else { return }
    if let watch = attempt.watch { loop.unwatch(watch) }
    attempt.watch = nil
    if let error = TCPSocket.connectionError(socket) { return fail(place, TLSError(.connection, "\(error)")) }
    guard let proxy else { return secure(place) }
    let tunnel = ProxyTunnel(socket, through: proxy, to: HTTPProxy.authority(host, port), loop: loop) {
      [weak self] outcome in self?.tunneled(place, outcome)
    }
    attempt.tunnel = tunnel
    handle(.reached(place))
    tunnel.start()
  }

  private func tunneled(_ place: Int, _ outcome: ProxyTunnel.Outcome) {
    attempts[place].tunnel = nil
    switch outcome {
    case .success: secure(place)
    case .failure(let fault):
      let error = error(of: fault, at: place)
      if fault.isOfEveryAddress { finish(.failure(error)) } else { fail(place, error) }
    }
  }

  private func error(of fault: ConnectAnswer.Fault, at place: Int) -> TLSError {
    guard let proxy else { preconditionFailure("a fault of a proxy where there is none") }
    let words = fault.words(target: HTTPProxy.authority(host, port), isLoggedIn: proxy.authorization != nil)
    return TLSError(.proxy, "the proxy \(proxy) (\(attempts[place].address)) \(words)")
  }

  /// The attempt's socket leads to the host.
  private func secure(_ place: Int) {
    let attempt = attempts[place]
    guard let context else { return handle(.opened(place)) }
    guard let socket = attempt.socket else { return }
    do {
      let stream = try TLSStream(socket, context: context, host: host, loop: loop)
      attempt.stream = stream
      attempt.socket = nil
      stream.delegate = self
      handle(.reached(place))
      stream.start()
    } catch {
      finish(.failure(error))  // the host cannot be verified by TLS: no other address would help
    }
  }

  private func fail(_ place: Int, _ error: TLSError) {
    note(place, error)
    leave(place)
    handle(.failed(place))
  }

  /// Why an address failed.
  private func note(_ place: Int, _ error: TLSError) {
    let address = attempts[place].address.description
    let detour = proxy.map { ", through the proxy \($0)" } ?? ""
    switch error.code {
    case .connection: lastError = TLSError(.connection, "\(host)\(detour) (\(address)): \(error)")
    case .proxy: lastError = error
    default: lastError = TLSError(error.code, "\(error)\(detour)")
    }
    book.didFail(address, of: hopBookName, now: loop.now)
  }

  private func leave(_ place: Int) {
    let attempt = attempts[place]
    if let watch = attempt.watch { loop.unwatch(watch) }
    attempt.watch = nil
    attempt.tunnel?.cancel()
    attempt.tunnel = nil
    attempt.stream?.delegate = nil
    attempt.stream?.close()
    attempt.stream = nil
    attempt.socket = nil
  }

  private func leaveAll() {
    timer?.cancel()
    timer = nil
    for place in attempts.indices { leave(place) }
  }

  private func open(_ attempt: Attempt) {
    let link: DialedConnection.Link
    if let stream = attempt.stream {
      link = .tls(stream)
    } else if let socket = attempt.socket {
      link = .tcp(socket)
    } else {
      return finish(.failure(lastError))
    }
    (attempt.stream, attempt.socket) = (nil, nil)
    book.didWork(attempt.address.description, of: hopBookName)
    let others = attempts.filter { $0 !== attempt }.map(\.address)
    finish(.success(DialedConnection(link: link, address: attempt.address, addresses: [attempt.address] + others)))
  }

  private func finish(_ result: Result<DialedConnection, TLSError>) {
    leaveAll()
    let completion = self.completion
    self.completion = nil
    completion?(result)
  }

  private func place(of stream: TLSStream) -> Int? { attempts.firstIndex { $0.stream === stream } }
}

extension AddressDialer: TLSStreamDelegate {
  public func streamDidOpen(_ stream: TLSStream) {
    if let place = place(of: stream) { handle(.opened(place)) }
  }

  public func stream(_ stream: TLSStream, didCloseWith error: TLSError?) {
    guard let place = place(of: stream) else { return }
    fail(place, error ?? TLSError(.connection, "\(host) closed the connection during the TLS handshake"))
  }

  public func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer) {}
  public func streamDidProgress(_ stream: TLSStream) {}
}

// Which of a host's addresses libcurl is to connect to.
//
// libcurl tries one address after the other and gives each a share of its time: some that drop every packet take it all, at
// each connection. So names are looked up here, and libcurl is given the addresses in the order of the `AddressBook`. Where
// it is not known which of several works, they are raced first (`AddressDialer`).
//
// libcurl never looks a name up itself: when it gives a request up whose name is still being looked up, it waits for the
// system's resolver, and with it the event loop and every other app would.

internal import Runtime

/// The routes of one client. Confined to its loop.
final class CurlRoutes {
  /// The addresses of a host.
  struct Route {
    fileprivate let addresses: [SocketAddress]
    /// As `CURLOPT_RESOLVE` wants them: `host:port:address,…`; nil where the URL itself has the address.
    let entry: String?

    fileprivate init(_ origin: CurlAddress.Origin, _ addresses: [SocketAddress]) {
      self.addresses = addresses
      let texts = addresses.map { $0.isIPv6 ? "[\($0.numericHost)]" : $0.numericHost }
      entry = "\(origin.host):\(origin.port):\(texts.joined(separator: ","))"
    }

    fileprivate init(inURL address: SocketAddress) {
      (addresses, entry) = ([address], nil)
    }
  }

  /// A route that is being looked for.
  private struct Search {
    var waiting: [(Route?) -> Void]
    let timer: EventLoop.Timer
    /// What the name stands for, while the addresses are raced.
    var addresses: [SocketAddress] = []
    var dialer: AddressDialer?
  }

  /// So long a route is used without looking the name up again.
  private static let routeTime = Nanoseconds.seconds(30)
  /// libcurl is given no more addresses: each gets a share of its time.
  private static let addressesMax = 3

  private let resolver: NameResolver
  private let book: AddressBook
  private let timeLimit: Nanoseconds
  private let loop: EventLoop
  private var known: [CurlAddress.Origin: (route: Route, until: Instant)] = [:]
  private var searches: [CurlAddress.Origin: Search] = [:]

  /// - Parameter timeLimit: libcurl gets what is known of a host after this time.
  init(resolver: NameResolver, book: AddressBook, timeLimit: Nanoseconds, loop: EventLoop) {
    self.resolver = resolver
    self.book = book
    self.timeLimit = timeLimit
    self.loop = loop
  }

  /// Finds the route to a host; nil when its name is not resolved in time. Calls back once, maybe inside this call.
  func find(_ origin: CurlAddress.Origin, _ completion: @escaping (Route?) -> Void) {
    if let address = SocketAddress(numericHost: origin.host, port: origin.port) {
      return completion(Route(inURL: address))
    }
    if let (route, until) = known[origin], until > loop.now { return completion(route) }
    guard searches[origin] == nil else {
      searches[origin]?.waiting.append(completion)
      return
    }
    let timer = loop.schedule(at: loop.now + timeLimit) { [unowned self] in
      found(origin, searches[origin]?.addresses ?? [])
    }
    searches[origin] = Search(waiting: [completion], timer: timer)
    resolver.resolve(origin.host, port: origin.port, on: loop) { [weak self] outcome in
      self?.resolved(origin, (try? outcome.get()) ?? [])
    }
  }

  /// The address that was to be tried first was of no use: the others are raced the next time.
  func didFail(_ origin: CurlAddress.Origin) {
    guard let first = known.removeValue(forKey: origin)?.route.addresses.first else { return }
    book.didFail(first.description, of: origin.bookName, now: loop.now)
  }

  /// A request was answered from this address, without brackets.
  func didWork(_ origin: CurlAddress.Origin, at host: String) {
    guard let addresses = known[origin]?.route.addresses,
      let address = addresses.first(where: { $0.numericHost == host })
    else { return }
    if address.description != addresses[0].description { didFail(origin) }
    book.didWork(address.description, of: origin.bookName)
  }

  /// Gives up; who waits is told that there is no route.
  func close() {
    for origin in Array(searches.keys) { found(origin, []) }
  }

  private func resolved(_ origin: CurlAddress.Origin, _ addresses: [SocketAddress]) {
    guard searches[origin] != nil else { return }
    let ordered = order(addresses, origin)
    if ordered.count < 2 || book.hasWorked(ordered[0].description, of: origin.bookName) {
      return found(origin, ordered)
    }
    let dialer = AddressDialer(
      host: origin.host, port: origin.port, context: nil, loop: loop, resolver: NameResolver.of(ordered), book: book
    ) { [unowned self] result in
      if case .success(let dialed) = result { return found(origin, dialed.addresses) }
      found(origin, ordered)
    }
    searches[origin]?.addresses = ordered
    searches[origin]?.dialer = dialer
    dialer.start()
  }

  private func order(_ addresses: [SocketAddress], _ origin: CurlAddress.Origin) -> [SocketAddress] {
    book.order(addresses.map { ($0.description, $0.isIPv6) }, of: origin.bookName, now: loop.now).map { addresses[$0] }
  }

  private func found(_ origin: CurlAddress.Origin, _ addresses: [SocketAddress]) {
    guard let search = searches.removeValue(forKey: origin) else { return }
    search.timer.cancel()
    search.dialer?.cancel()
    let route = addresses.isEmpty ? nil : Route(origin, Array(addresses.prefix(Self.addressesMax)))
    if let route { known[origin] = (route, loop.now + Self.routeTime) }
    for completion in search.waiting { completion(route) }
  }
}

extension CurlAddress.Origin {
  /// As `AddressDialer` calls it.
  fileprivate var bookName: String { AddressDialer.bookName(host, port) }
}

// Chooses the addresses of a host to which libcurl connects.
//
// libcurl tries one address after the other and gives each a share of the connect timeout. A few addresses that drop every packet
// would use up this time at each connection. Names are therefore resolved here, and libcurl gets the addresses in the order of the
// `AddressBook`. If it is not known which of several addresses works, they are raced first (`AddressDialer`).
//
// libcurl never resolves a name itself. If it cancelled a request during the lookup, it would wait for the system's resolver and
// block the event loop, and so all apps.

internal import Runtime

/// The routes of one client. Confined to its loop.
final class CurlRoutes {
  /// The addresses of a host.
  struct Route {
    fileprivate let addresses: [SocketAddress]
    /// The value of `CURLOPT_RESOLVE`: `host:port:address,…`. Nil if the URL itself contains the address.
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
    /// The resolved addresses while they are raced.
    var addresses: [SocketAddress] = []
    var dialer: AddressDialer?
  }

  /// How long a route is used before the name is resolved again.
  private static let routeTime = Nanoseconds.seconds(30)
  /// Maximum number of addresses for libcurl, because each gets a share of the connect timeout.
  private static let addressesMax = 3

  private let resolver: NameResolver
  private let book: AddressBook
  private let timeLimit: Nanoseconds
  private let loop: EventLoop
  private var known: [CurlAddress.Origin: (route: Route, until: Instant)] = [:]
  private var searches: [CurlAddress.Origin: Search] = [:]

  /// - Parameter timeLimit: maximum time to find a route. After that libcurl gets the addresses known so far.
  init(resolver: NameResolver, book: AddressBook, timeLimit: Nanoseconds, loop: EventLoop) {
    self.resolver = resolver
    self.book = book
    self.timeLimit = timeLimit
    self.loop = loop
  }

  /// Finds the route to a host; nil if its name is not resolved in time. Calls `completion` once, possibly inside this call.
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

  /// The first address of the route did not work. The next search resolves the name again and races the addresses.
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

  /// Cancels all searches. Their completions get no route.
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
  /// The name that `AddressDialer` uses for it in the `AddressBook`.
  fileprivate var bookName: String { AddressDialer.bookName(host, port) }
}

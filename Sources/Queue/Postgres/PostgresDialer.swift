// From a connection URL to an open connection: look names up, then race the addresses.
//
// Given a list of hosts, libpq looks names up on the loop's thread. When it connects asynchronously, it waits without limit for the
// first host that does not answer. So it gets one address at a time, and the next address is tried beside it if the first does not
// accept the connection within a moment (`AddressRace`). Hosts are tried in the URL's order, except that hosts that failed lately
// come last, and the host that worked last comes first.

internal import Runtime

/// One attempt to reach a server. Confined to its loop. It is over when it has called `completion`.
final class PostgresDialer {
  /// Maximum time to connect to one address, unless the URL sets `connect_timeout`.
  static let timeout = Nanoseconds.seconds(5)
  /// How long an address that has accepted the connection may take before another one is tried as well, so that a busy server
  /// does not get a second connection.
  static let patience = Nanoseconds.seconds(2)

  private let url: String
  private let applicationName: String
  private let loop: EventLoop
  private let resolver: NameResolver
  private let book: AddressBook
  private var completion: ((Result<PostgresPipeline, PostgresError>) -> Void)?

  private var timeout = PostgresDialer.timeout
  /// The address book's name for all places of the URL together.
  private var bookName = ""
  /// The endpoints of each place of the URL, once it is looked up.
  private var resolved: [[PostgresEndpoint]] = []
  private var unresolvedCount = 0
  private var endpoints: [PostgresEndpoint] = []
  private var race: AddressRaceRunner?
  private var channels: [Int: PostgresPipeline] = [:]
  private var timer: EventLoop.Timer?
  /// Why earlier addresses failed, each reason once.
  private var complaints: [String] = []
  /// With which SQLSTATE the last server refused the connection.
  private var refusal: String?

  /// - Parameter completion: called once on the loop, never inside `start`, unless `cancel` comes first.
  init(
    url: String, applicationName: String, loop: EventLoop, resolver: NameResolver = .system,
    book: AddressBook = .shared, completion: @escaping (Result<PostgresPipeline, PostgresError>) -> Void
  ) {
    self.url = url
    self.applicationName = applicationName
    self.loop = loop
    self.resolver = resolver
    self.book = book
    self.completion = completion
  }

  func start() {
    let plan: PostgresHosts.Plan
    do throws(PostgresError) {
      plan = try PostgresHosts.plan(for: url)
    } catch {
      return loop.atEndOfTurn { [self] in finish(.failure(error)) }
    }
    if let seconds = plan.timeoutSeconds { timeout = .seconds(seconds) }
    if plan.endpoints.isEmpty { return openAnywhere() }
    bookName = "postgres " + plan.endpoints.map(\.description).joined(separator: ",")
    resolved = plan.endpoints.map { $0.needsAddress ? [] : [$0] }
    unresolvedCount = plan.endpoints.count(where: \.needsAddress)
    if unresolvedCount == 0 { return begin() }
    // All names together get the time of one address.
    timer = loop.schedule(at: loop.now + timeout) { [self] in
      complain("looking up the name of the database's host takes too long")
      begin()
    }
    for (place, endpoint) in plan.endpoints.enumerated() where endpoint.needsAddress { resolve(endpoint, place) }
  }

  /// Gives up without calling `completion`.
  func cancel() {
    completion = nil
    leaveAll()
  }

  // MARK: - Names

  private func resolve(_ endpoint: PostgresEndpoint, _ place: Int) {
    resolver.resolve(endpoint.host, port: 0, on: loop) { [self] outcome in
      switch outcome {
      case .success(let addresses):
        resolved[place] = addresses.map {
          PostgresEndpoint(host: endpoint.host, address: $0.numericHost, port: endpoint.port)
        }
      case .failure(let error): complain(error.description)
      }
      unresolvedCount -= 1
      if unresolvedCount == 0 { begin() }
    }
  }

  // MARK: - The race

  private func begin() {
    guard completion != nil, endpoints.isEmpty else { return }
    timer?.cancel()
    let found = resolved.flatMap { $0 }
    let order = book.order(
      found.map { ($0.description, $0.address.contains(":")) }, of: bookName, now: loop.now, interleaves: false)
    endpoints = order.map { found[$0] }
    var settings = AddressRace.Settings()
    settings.handshakePatience = Self.patience
    settings.attemptTimeout = timeout
    race = AddressRaceRunner(count: endpoints.count, settings: settings) { [unowned self] in perform($0) }
    handle(.started)
  }

  private func handle(_ event: AddressRace.Event) { race?.handle(event, now: loop.now) }

  private func perform(_ action: AddressRace.Action) {
    guard completion != nil else { return }
    switch action {
    case .attempt(let place): open(place)
    case .abandon(let place): channels.removeValue(forKey: place)?.close()
    case .timeOut(let place):
      complain("connecting to Postgres at \(endpoints[place].place) took longer than \(timeout.seconds) s")
      didFail(place)
      channels.removeValue(forKey: place)?.close()
    case .wake(let instant):
      timer?.cancel()
      timer = loop.schedule(at: instant) { [weak self] in self?.handle(.woken) }
    case .finish(let winner):
      guard let channel = winner.flatMap({ channels.removeValue(forKey: $0) }) else {
        var error = PostgresError(
          .connectionFailed, complaints.joined(separator: "; "), hint: PostgresError.remedy(ofRefusal: refusal))
        error.refusal = refusal
        return finish(.failure(error))
      }
      finish(.success(channel))
    }
  }

  private func open(_ place: Int) {
    // The race enforces the time limit. libpq's own limit comes later.
    let channel = PostgresPipeline(
      url: url, endpoint: endpoints[place], applicationName: applicationName, loop: loop, timeout: timeout + .seconds(1)
    ) { [self] error in
      guard completion != nil, channels[place] != nil else { return }
      guard let error else {
        book.didWork(endpoints[place].description, of: bookName)
        return handle(.opened(place))
      }
      complain(error.message)
      refusal = error.refusal ?? refusal
      didFail(place)
      channels[place] = nil
      handle(.failed(place))
    }
    channels[place] = channel
    channel.onReach = { [weak self] in self?.handle(.reached(place)) }
  }

  private func didFail(_ place: Int) {
    book.didFail(endpoints[place].description, of: bookName, now: loop.now)
  }

  /// Lets libpq decide where to connect.
  private func openAnywhere() {
    channels[0] = PostgresPipeline(
      url: url, endpoint: nil, applicationName: applicationName, loop: loop, timeout: timeout
    ) { [self] error in
      guard completion != nil, let channel = channels.removeValue(forKey: 0) else { return }
      finish(error.map { .failure($0) } ?? .success(channel))
    }
  }

  // MARK: - The end

  private func complain(_ text: String) {
    if !complaints.contains(text) { complaints.append(text) }
  }

  private func leaveAll() {
    timer?.cancel()
    timer = nil
    for channel in channels.values { channel.close() }
    channels = [:]
  }

  private func finish(_ outcome: Result<PostgresPipeline, PostgresError>) {
    leaveAll()
    let completion = self.completion
    self.completion = nil
    completion?(outcome)
  }
}

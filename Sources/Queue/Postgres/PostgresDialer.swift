// From a connection URL to an open connection: look names up, then try one address after the other.
//
// libpq's own way through a list of hosts looks names up on the thread of the loop, and, where connecting is asynchronous, waits for the first
// that does not answer for as long as it is let. So it is given one address at a time.

internal import Runtime

/// One attempt to reach a server. Confined to its loop; done when it has called back.
final class PostgresDialer {
  /// How long connecting may take in all to the only, or the last, address, unless the URL says `connect_timeout`.
  static let timeout = Nanoseconds.seconds(5)
  /// How long it may take while there are others to try.
  static let impatience = Nanoseconds.seconds(2)

  private let url: String
  private let applicationName: String
  private let loop: EventLoop
  private let lookups: HostLookups
  private var completion: ((Result<PostgresChannel, PostgresError>) -> Void)?

  private var timeoutSeconds: Int64?
  private var unresolved: ArraySlice<PostgresEndpoint> = []
  private var untried: ArraySlice<PostgresEndpoint> = []
  private var channel: PostgresChannel?
  private var timer: EventLoop.Timer?
  /// Why the ones before failed, each reason once.
  private var complaints: [String] = []

  /// - Parameter completion: called once on the loop, never inside `start`, unless `cancel` comes first.
  init(
    url: String, applicationName: String, loop: EventLoop, lookups: HostLookups,
    completion: @escaping (Result<PostgresChannel, PostgresError>) -> Void
  ) {
    self.url = url
    self.applicationName = applicationName
    self.loop = loop
    self.lookups = lookups
    self.completion = completion
  }

  func start() {
    do throws(PostgresError) {
      let plan = try PostgresHosts.plan(for: url)
      timeoutSeconds = plan.timeoutSeconds
      unresolved = plan.endpoints[...]
      if unresolved.isEmpty { return open(nil) }
    } catch {
      return loop.atEndOfTurn { [self] in finish(.failure(error)) }
    }
    // The names together get as long as one address.
    timer = loop.schedule(at: loop.now + patience(whileOthers: false)) { [self] in
      complaints.append("looking up the name of the database's host takes too long")
      unresolved = []
      tryNext()
    }
    resolveNext()
  }

  /// Gives up without a word.
  func cancel() {
    completion = nil
    timer?.cancel()
    channel?.close()
    channel = nil
  }

  private func patience(whileOthers: Bool) -> Nanoseconds {
    timeoutSeconds.map(Nanoseconds.seconds) ?? (whileOthers ? Self.impatience : Self.timeout)
  }

  private func resolveNext() {
    guard completion != nil else { return }
    while let endpoint = unresolved.popFirst() {
      guard endpoint.needsAddress else {
        untried.append(endpoint)
        continue
      }
      return lookups.look(up: endpoint.host) { [self] outcome in
        switch outcome {
        case .success(let addresses):
          untried += addresses.map {
            PostgresEndpoint(host: endpoint.host, address: $0.numericHost, port: endpoint.port)
          }
        case .failure(let error): complain(error.description)
        }
        resolveNext()
      }
    }
    guard timer?.isPending == true else { return }  // the time for names was over before
    timer?.cancel()
    tryNext()
  }

  private func tryNext() {
    guard completion != nil else { return }
    guard let endpoint = untried.popFirst() else {
      return finish(.failure(PostgresError(.connectionFailed, complaints.joined(separator: "; "))))
    }
    open(endpoint)
  }

  private func open(_ endpoint: PostgresEndpoint?) {
    let timeout = patience(whileOthers: !untried.isEmpty)
    channel = PostgresChannel(
      url: url, endpoint: endpoint, applicationName: applicationName, loop: loop, timeout: timeout
    ) { [self] error in
      guard completion != nil, let channel else { return }
      guard let error else { return finish(.success(channel)) }
      complain(error.message)
      tryNext()
    }
  }

  private func complain(_ text: String) {
    if !complaints.contains(text) { complaints.append(text) }
  }

  private func finish(_ outcome: Result<PostgresChannel, PostgresError>) {
    timer?.cancel()
    channel = nil
    let completion = self.completion
    self.completion = nil
    completion?(outcome)
  }
}

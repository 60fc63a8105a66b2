// Access tokens for one service account. All callers share one token, which is kept until five minutes before it expires.

public import Runtime

/// Exchanges assertions for access tokens in this process.
///
/// All callers share the exchanges. At most one starts in an `interval`, whatever happens: a caller that comes sooner waits for the
/// next. While anybody waits, the next one starts after the interval even if the last one hangs, and the first grant ends the
/// wait of all. So a call waits at most an interval after the endpoint is well. If only the renewal of a valid token
/// fails, nobody waits, and the exchanges are rarer.
public actor FCMTokenSource: ProviderTokenSource {
  /// How long before its expiry a token is renewed.
  static let renewalMargin = Nanoseconds.seconds(300)
  /// The time between the starts of two exchanges: at least, and while a caller has no token also at most.
  public static let interval = Nanoseconds.seconds(1)
  /// Maximum time of an exchange.
  static let exchangeTimeout = Nanoseconds.seconds(5)

  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private typealias Answer = Result<ProviderToken, ProviderTokenError>

  private let account: FCMServiceAccount
  private let caFile: String?
  private let proxy: HTTPProxy?
  private let clock: any GatewayClock
  /// The waits before the next try to renew a token that is still valid.
  private let backoff: ReconnectBackoff
  private var current: (token: ProviderToken, endsAtMilliseconds: Int64)?
  /// The clients of the exchanges under way: at most as many as start within `exchangeTimeout`. Exchanges happen about once an hour, so no
  /// connection is kept.
  private var clients: [CurlClient] = []
  private var waiting: [CheckedContinuation<Answer, Never>] = []
  private var timer: EventLoop.Timer?
  /// No exchange starts before this time.
  private var mayStartAt = Instant(nanoseconds: .min)
  private var failures = 0
  /// A token that is still valid is not renewed before this time.
  private var renewsAt = Instant(nanoseconds: .min)
  /// The proxy authorization of the last failed exchange. With another one, a token is renewed without waiting.
  private var failedAuthorization: String?

  /// - Parameters:
  ///   - caFile: a PEM file of CA certificates trusted in addition to the system's.
  ///   - proxy: the proxy of the exchange; nil: none.
  public init(
    account: FCMServiceAccount, caFile: String? = nil, proxy: HTTPProxy? = nil, loop: EventLoop,
    clock: any GatewayClock = SystemClock()
  ) {
    self.account = account
    self.caFile = caFile
    self.proxy = proxy
    self.loop = loop
    self.clock = clock
    var backoff = ReconnectBackoff()
    (backoff.base, backoff.max) = (Self.interval, .seconds(60))
    self.backoff = backoff
  }

  public func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    if let current, isFresh(current.token, refused: refused) { return current.token }
    if clock.now() < renewsAt, proxy?.authorization == failedAuthorization, let token = fallback(refused: refused) {
      return token
    }
    let answer = await withCheckedContinuation { continuation in
      waiting.append(continuation)
      startIfDue()
    }
    switch answer {
    case .success(let token): return token
    case .failure(let error):
      guard let token = fallback(refused: refused) else { throw error }
      return token
    }
  }

  private func isFresh(_ token: ProviderToken, refused: ProviderToken?) -> Bool {
    let now = clock.wallMilliseconds()
    // If the clock was set back, the age is negative and the token's expiry is unknown.
    return token != refused && now >= token.issuedAtMilliseconds && now < token.renewAtMilliseconds
  }

  /// The current token if it is still valid and was not refused.
  private func fallback(refused: ProviderToken?) -> ProviderToken? {
    guard let current, current.token != refused, clock.wallMilliseconds() < current.endsAtMilliseconds else {
      return nil
    }
    return current.token
  }

  /// Starts an exchange while somebody waits, and another one after each interval.
  private func startIfDue() {
    guard !waiting.isEmpty else { return }
    let now = loop.now
    if mayStartAt <= now {
      mayStartAt = now + Self.interval
      exchange()
    }
    timer?.cancel()
    timer = loop.schedule(at: mayStartAt) { self.startIfDue() }
  }

  private func exchange() {
    let now = clock.wallMilliseconds()
    let authorization = proxy?.authorization
    let assertion: [UInt8]
    do { assertion = try account.assertion(issuedAtSeconds: now / 1000) } catch {
      // At the end of the turn, so that the caller's continuation is not resumed while it is being set up.
      loop.atEndOfTurn { self.finish(.failure(ProviderTokenError("\(error)")), shown: authorization) }
      return
    }
    var configuration = CurlConfiguration(caFile: caFile)
    configuration.proxy = proxy
    configuration.totalTimeout = Self.exchangeTimeout
    let client = CurlClient(loop: loop, configuration: configuration)
    clients.append(client)
    let request = CurlRequest(
      url: account.tokenURI, headers: FCMTokenExchange.headers, body: FCMTokenExchange.body(assertion: assertion))
    client.perform(request) { result in
      guard self.clients.contains(where: { $0 === client }) else { return }  // another one was faster
      self.clients.removeAll { $0 === client }
      client.close()
      self.finish(self.read(result, askedAtMilliseconds: now), shown: authorization)
    }
  }

  private func read(_ result: Result<CurlResponse, CurlFailure>, askedAtMilliseconds now: Int64) -> Answer {
    let response: CurlResponse
    switch result {
    case .success(let answer): response = answer
    case .failure(let failure):
      return .failure(ProviderTokenError("the request to the token endpoint failed: \(failure)"))
    }
    do {
      let grant = try FCMTokenExchange.read(response)
      let lifetime = Nanoseconds.seconds(grant.lifetimeSeconds)
      let renewal = max(lifetime - Self.renewalMargin, lifetime / 2)
      let token = ProviderToken(
        value: grant.value, issuedAtMilliseconds: now, renewAtMilliseconds: now + renewal.milliseconds)
      current = (token, now + lifetime.milliseconds)
      return .success(token)
    } catch {
      return .failure(error)
    }
  }

  /// - Parameter authorization: the proxy authorization that the exchange used, if any.
  private func finish(_ answer: Answer, shown authorization: String?) {
    var answer = answer
    switch answer {
    case .success:
      failures = 0
      renewsAt = Instant(nanoseconds: .min)
      let slower = clients
      clients = []
      for client in slower { client.close() }
    case .failure(let error):
      failures += 1
      failedAuthorization = authorization
      renewsAt = clock.now() + backoff.delay(afterFailures: failures, random: .random(in: .min ... .max))
      answer = .failure(
        ProviderTokenError("no access token for \(account.clientEmail): \(error)", refusal: error.refusal))
    }
    timer?.cancel()
    let waiting = waiting
    self.waiting = []
    for continuation in waiting { continuation.resume(returning: answer) }
  }
}

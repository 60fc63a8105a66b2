// Access tokens for one service account. All callers share one token, which is kept until five minutes before it expires.

public import Runtime

/// Exchanges assertions for access tokens in this process.
///
/// All callers wait for the same exchange. After a failure the next exchange starts only after the backoff. Until then a token
/// that is due for renewal but still valid is returned.
public actor FCMTokenSource: ProviderTokenSource {
  /// How long before its expiry a token is renewed.
  static let renewalMargin = Nanoseconds.seconds(300)
  /// Minimum age of a refused token before it is replaced. A replacement for a younger one would be refused as well.
  public static let replacementAgeMin = Nanoseconds.seconds(30)

  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private typealias Answer = Result<ProviderToken, ProviderTokenError>

  private let account: FCMServiceAccount
  private let caFile: String?
  private let proxy: HTTPProxy?
  private let clock: any GatewayClock
  private let backoff: ReconnectBackoff
  private var current: (token: ProviderToken, endsAtMilliseconds: Int64)?
  /// The client of the exchange under way. Exchanges happen about once an hour, so the connection is not kept.
  private var client: CurlClient?
  private var waiting: [CheckedContinuation<Answer, Never>] = []
  private var failures = 0
  private var notBefore = Instant(nanoseconds: .min)
  /// The proxy authorization of the last failed exchange. With another one the next exchange starts without waiting.
  private var failedAuthorization: String?
  private var lastError = ProviderTokenError("no access token has been requested yet")

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
    (backoff.base, backoff.max) = (.seconds(1), .seconds(60))
    self.backoff = backoff
  }

  public func token(replacing refused: ProviderToken?) async throws(ProviderTokenError) -> ProviderToken {
    if let current, isFresh(current.token, refused: refused) { return current.token }
    guard clock.now() >= notBefore || proxy?.authorization != failedAuthorization else {
      return try fallback(refused: refused)
    }
    let answer = await withCheckedContinuation { continuation in
      waiting.append(continuation)
      if waiting.count == 1 { exchange() }
    }
    switch answer {
    case .success(let token): return token
    case .failure: return try fallback(refused: refused)
    }
  }

  private func isFresh(_ token: ProviderToken, refused: ProviderToken?) -> Bool {
    let now = clock.wallMilliseconds()
    // If the clock was set back, the age is negative and the token's expiry is unknown.
    let age = now - token.issuedAtMilliseconds
    guard age >= 0, now < token.renewAtMilliseconds else { return false }
    return token != refused || age < Self.replacementAgeMin.milliseconds
  }

  /// Returns the current token if it is still valid and was not refused. Otherwise throws the last error.
  private func fallback(refused: ProviderToken?) throws(ProviderTokenError) -> ProviderToken {
    guard let current, current.token != refused, clock.wallMilliseconds() < current.endsAtMilliseconds else {
      throw lastError
    }
    return current.token
  }

  private func exchange() {
    let now = clock.wallMilliseconds()
    let assertion: [UInt8]
    do { assertion = try account.assertion(issuedAtSeconds: now / 1000) } catch {
      // At the end of the turn, so that the caller's continuation is not resumed while it is being set up.
      loop.atEndOfTurn { self.finish(.failure(ProviderTokenError("\(error)")), shown: self.proxy?.authorization) }
      return
    }
    var configuration = CurlConfiguration(caFile: caFile)
    configuration.proxy = proxy
    let client = CurlClient(loop: loop, configuration: configuration)
    self.client = client
    var request = CurlRequest(
      url: account.tokenURI, headers: FCMTokenExchange.headers, body: FCMTokenExchange.body(assertion: assertion))
    request.isRepeatable = true
    let authorization = proxy?.authorization
    client.perform(request) { result in
      self.client?.close()
      self.client = nil
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
    switch answer {
    case .success:
      failures = 0
      notBefore = Instant(nanoseconds: .min)
    case .failure(let error):
      failures += 1
      failedAuthorization = authorization
      notBefore = clock.now() + backoff.delay(afterFailures: failures, random: .random(in: .min ... .max))
      lastError = ProviderTokenError("no access token for \(account.clientEmail): \(error)")
    }
    let waiting = waiting
    self.waiting = []
    for continuation in waiting { continuation.resume(returning: answer) }
  }
}

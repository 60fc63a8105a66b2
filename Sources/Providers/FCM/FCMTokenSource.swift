// Access tokens for one service account: fetched once for everybody who asks, kept until five minutes before their end.

public import Runtime

/// Exchanges assertions for access tokens in this process.
///
/// While one exchange is under way everybody waits for it; after a failure nobody tries again before the backoff
/// allows, and a token that is due for renewal but still good is used on.
public actor FCMTokenSource: ProviderTokenSource {
  /// How long before its end a token is renewed.
  static let renewalMargin = Nanoseconds.seconds(300)
  /// A refused token younger than this is not replaced: another one would be refused as well.
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
  /// The exchange under way. Once an hour: a connection is not worth keeping.
  private var client: CurlClient?
  private var waiting: [CheckedContinuation<Answer, Never>] = []
  private var failures = 0
  private var notBefore = Instant(nanoseconds: .min)
  /// What the proxy was shown by the exchange that failed last; with another login the next need not wait.
  private var failedAuthorization: String?
  private var lastError = ProviderTokenError("no access token has been asked for")

  /// - Parameters:
  ///   - caFile: a PEM file of CA certificates believed besides the system's.
  ///   - proxy: what the exchange goes through; nil: to the token endpoint itself.
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
    // A clock set back makes the age negative: then nothing is known about the token's end.
    let age = now - token.issuedAtMilliseconds
    guard age >= 0, now < token.renewAtMilliseconds else { return false }
    return token != refused || age < Self.replacementAgeMin.milliseconds
  }

  /// The token there is, if it is still good; else why there is none.
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
      // At the end of the turn: the caller's continuation is not to be resumed before it is awaited on.
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
    case .failure(let failure): return .failure(ProviderTokenError("the token endpoint could not be asked: \(failure)"))
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

  /// - Parameter authorization: what the proxy was shown, if there is one.
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

// The provider token in use. It is fetched from its source, renewed before it expires and replaced when the provider refuses it.

internal import Logging
internal import Runtime

/// Keeps one source's token current. Confined to the provider's loop.
final class RenewingToken {
  /// Maximum wait of a push before the source is asked again.
  static let retryDelayMax = Nanoseconds.seconds(1)
  /// Maximum lifetime of a token, even if the source says otherwise (Apple: 60 minutes; Google: 3,600 s).
  static let lifetimeMax = Nanoseconds.seconds(3600)
  /// How long the older token stays in use if the provider refuses a new one as too early.
  static let olderTokenDelay = Nanoseconds.seconds(300)

  /// Called when the source has returned a token, even if it is the refused one again. Paused requests may then be sent.
  var didArrive: (() -> Void)?
  /// Called when the source has returned no token.
  var didFail: ((ProviderTokenError) -> Void)?
  /// Whether pushes may wait for a token. If not, requests to a source without one become rarer.
  var isAwaited = true
  private(set) var current: ProviderToken?
  /// Why the provider grants no token; nil if there is one, or for another cause.
  private(set) var refusal: String?
  /// The value of `authorization`.
  private(set) var authorization: [UInt8] = []

  private let source: any ProviderTokenSource
  private let scheme: StaticString
  private let clock: any GatewayClock
  private let loop: EventLoop
  private let logger: Logger
  private var previous: ProviderToken?
  /// `current`, from its refusal by the provider until the source has returned a token.
  private var refused: ProviderToken?
  /// A refused token that the source considers too young to be replaced. The cause is different clocks or different keys.
  private var unreplaceableToken: ProviderToken?
  private var isFetching = false
  /// Number of requests to the source in a row that returned no token, or only the refused one.
  private var failures = 0
  private var isStopped = false
  private var timer: EventLoop.Timer?

  init(
    _ source: any ProviderTokenSource, scheme: StaticString, clock: any GatewayClock, loop: EventLoop, logger: Logger
  ) {
    self.source = source
    self.scheme = scheme
    self.clock = clock
    self.loop = loop
    self.logger = logger
  }

  /// Fetches the first token.
  func start() { fetch() }

  /// Fetches no more tokens. The token in use stays.
  func stop() {
    isStopped = true
    timer?.cancel()
  }

  /// Whether a request that was refused with this token should be sent again.
  func isWorthAnotherTry(after refused: ProviderToken) -> Bool { refused != unreplaceableToken }

  /// The provider refused a token as too old. Returns whether no request should be sent until `didArrive`.
  func replace(_ token: ProviderToken) -> Bool {
    guard token == current else { return false }  // already replaced
    if refused == nil {
      refused = token
      fetch()
    }
    return true
  }

  /// The provider refused a token because it came too soon after the previous one. Uses the previous token if there is one that may
  /// still be valid.
  func useOlder(than rejected: ProviderToken) {
    guard rejected == current, let older = previous else { return }
    guard clock.wallMilliseconds() - older.issuedAtMilliseconds < Self.lifetimeMax.milliseconds else { return }
    logger.warning("the provider accepts no new token yet; the previous one is used")
    use(older)
    previous = nil
    scheduleFetch(after: Self.olderTokenDelay)
  }

  // MARK: - Source

  private func fetch() {
    guard !isFetching, !isStopped else { return }
    isFetching = true
    let unwanted = refused ?? unreplaceableToken
    // The task only holds the reference. All accesses are on the loop.
    nonisolated(unsafe) let holder = self
    Task { [source, loop] in
      let answer: Result<ProviderToken, ProviderTokenError>
      do throws(ProviderTokenError) {
        answer = .success(try await source.token(replacing: unwanted))
      } catch {
        answer = .failure(error)
      }
      loop.execute { unsafe holder.answered(answer, unwanted: unwanted) }
    }
  }

  private func answered(_ answer: Result<ProviderToken, ProviderTokenError>, unwanted: ProviderToken?) {
    isFetching = false
    guard !isStopped else { return }
    switch answer {
    case .failure(let error):
      failures += 1
      refusal = error.refusal
      // While it lasts, each line is followed by one after twice as many failures.
      if failures.nonzeroBitCount == 1 { logger.error("no provider token", metadata: ["error": "\(error)"]) }
      scheduleFetch(after: retryDelay)
      didFail?(error)
    case .success(let token):
      if token == refused, token != unwanted { return fetch() }  // refused while the fetch was under way
      refusal = nil
      unreplaceableToken = token == unwanted ? token : nil
      refused = nil
      failures = unreplaceableToken == nil ? 0 : failures + 1
      if token != current {
        previous = current
        use(token)
      }
      scheduleFetch(after: unreplaceableToken == nil ? untilRenewal(of: token) : retryDelay)
      didArrive?()
    }
  }

  private func use(_ token: ProviderToken) {
    current = token
    authorization = unsafe Array(UnsafeBufferPointer(start: scheme.utf8Start, count: scheme.utf8CodeUnitCount))
    authorization += token.value
  }

  /// The wait before another request to a source that returned no token, or only the refused one. While a push may wait for it, it is
  /// at most a second; the source limits how often it asks the provider.
  private var retryDelay: Nanoseconds {
    var backoff = ReconnectBackoff(max: isAwaited ? Self.retryDelayMax : .seconds(60))
    backoff.base = Self.retryDelayMax
    return backoff.delay(afterFailures: failures, random: .random(in: .min ... .max))
  }

  /// The time until the token is renewed: at least one second and at most `lifetimeMax`, whatever the source says.
  private func untilRenewal(of token: ProviderToken) -> Nanoseconds {
    let (delay, overflow) = token.renewAtMilliseconds.subtractingReportingOverflow(clock.wallMilliseconds())
    guard !overflow else { return Self.lifetimeMax }
    return .milliseconds(min(max(delay, 1000), Self.lifetimeMax.milliseconds))
  }

  private func scheduleFetch(after delay: Nanoseconds) {
    timer?.cancel()
    timer = loop.schedule(at: loop.now + delay) { [weak self] in self?.fetch() }
  }
}

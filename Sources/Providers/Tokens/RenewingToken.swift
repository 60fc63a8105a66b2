// The provider token in use. It is fetched from its source, renewed before it expires and replaced when the provider refuses it.

internal import Logging
internal import Runtime

/// Keeps one source's token current. Confined to the provider's loop.
final class RenewingToken {
  /// The wait before another request to a source that returned no token.
  static let retryDelay = Nanoseconds.seconds(2)
  /// Maximum lifetime of a token, even if the source says otherwise (Apple: 60 minutes; Google: 3,600 s).
  static let lifetimeMax = Nanoseconds.seconds(3600)
  /// The wait before another request to a source that returned the refused token. The source may replace the token when it is
  /// older.
  static let unreplaceableTokenDelay = Nanoseconds.seconds(60)
  /// How long the older token stays in use if the provider refuses a new one as too early.
  static let olderTokenDelay = Nanoseconds.seconds(300)

  /// Called when the source has returned a token, even if it is the refused one again. Paused requests may then be sent.
  var didArrive: (() -> Void)?
  private(set) var current: ProviderToken?
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
      logger.error("no provider token", metadata: ["error": "\(error)"])
      scheduleFetch(after: Self.retryDelay)
    case .success(let token):
      if token == refused, token != unwanted { return fetch() }  // refused while the fetch was under way
      unreplaceableToken = token == unwanted ? token : nil
      refused = nil
      if token != current {
        previous = current
        use(token)
      }
      scheduleFetch(after: unreplaceableToken == nil ? untilRenewal(of: token) : Self.unreplaceableTokenDelay)
      didArrive?()
    }
  }

  private func use(_ token: ProviderToken) {
    current = token
    authorization = unsafe Array(UnsafeBufferPointer(start: scheme.utf8Start, count: scheme.utf8CodeUnitCount))
    authorization += token.value
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

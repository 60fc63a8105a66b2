// The provider token in use: asked for at its source, renewed in good time, replaced when the provider refuses it.

internal import Logging
internal import Runtime

/// Keeps one source's token current. Confined to the provider's loop.
final class RenewingToken {
  /// How soon to ask again for a token that was not to be had.
  static let retryDelay = Nanoseconds.seconds(2)
  /// After this no token is good any more, and no source is believed that says so (Apple: 60 minutes; Google: 3,600 s).
  static let lifetimeMax = Nanoseconds.seconds(3600)
  /// How soon to ask again when the source held on to a refused token, which it may replace when it is older.
  static let unreplaceableTokenDelay = Nanoseconds.seconds(60)
  /// How long an older token is used on when the provider found the new one too early.
  static let olderTokenDelay = Nanoseconds.seconds(300)

  /// A token came, or was asked for again in vain: what waited for it may go on.
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
  /// `current`, from the moment the provider refused it until the source gave its answer.
  private var refused: ProviderToken?
  /// A refused token that the source finds too young to be replaced: clocks differ, or keys.
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

  /// Asks for the first token.
  func start() { fetch() }

  /// Asks for no more tokens; the one in use stays.
  func stop() {
    isStopped = true
    timer?.cancel()
  }

  /// Whether to send a request again that was refused with this token.
  func isWorthAnotherTry(after refused: ProviderToken) -> Bool { refused != unreplaceableToken }

  /// The provider refused a token as too old. Returns whether nothing should leave until `didArrive`.
  func replace(_ token: ProviderToken) -> Bool {
    guard token == current else { return false }  // it has been replaced since
    if refused == nil {
      refused = token
      fetch()
    }
    return true
  }

  /// The provider found a token too early: the one before it is used on, if there is one that may still be good.
  func useOlder(than rejected: ProviderToken) {
    guard rejected == current, let older = previous else { return }
    guard clock.wallMilliseconds() - older.issuedAtMilliseconds < Self.lifetimeMax.milliseconds else { return }
    logger.warning("the provider takes no new token yet; the one before it is used on")
    use(older)
    previous = nil
    scheduleFetch(after: Self.olderTokenDelay)
  }

  // MARK: - Source

  private func fetch() {
    guard !isFetching, !isStopped else { return }
    isFetching = true
    let unwanted = refused ?? unreplaceableToken
    // Only the reference travels; everything is touched on the loop.
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
      if token == refused, token != unwanted { return fetch() }  // refused after it had been asked for
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

  /// Whatever the source says, the answer to when is between a second and an hour from now.
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

// One provider account that several owners use, such as the dispatchers of several databases: its connections, its capacity and
// its rate.
//
// Each owner gets a `ProviderShare`, which looks like a provider of its own. The results of a request go to the owner that its tag
// names. Capacity and rate are divided among the owners that are active; one that is not active is told the part that it would get.
// So a backlog of one owner leaves room for a call of another one, and an owner without calls takes nothing from the others.

public import Runtime

/// A provider and the shares in it. An actor on the provider's loop.
public actor SharedProvider {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  /// An owner is active for this long after its last request, and while it waits for a result.
  static let activeTime = Nanoseconds.seconds(1)

  private struct Share {
    let report: @Sendable (PushProviderEvent) -> Void
    /// Number of its requests without a result.
    var waiting = 0
    var lastSentAt = Instant(nanoseconds: .min)
    /// Among how many owners capacity and rate are divided, as it was told.
    var parts = 1
    var isEnding = false
    var onEnd: CheckedContinuation<Void, Never>?

    func isActive(_ now: Instant) -> Bool { waiting > 0 || lastSentAt + SharedProvider.activeTime > now }
  }

  nonisolated let provider: any PushProvider
  /// By the number of the owner.
  private var shares: [Int: Share] = [:]
  private var capacity = 0
  private var isStarted = false
  private var dividedAt = Instant(nanoseconds: .min)

  public init(_ provider: any PushProvider) {
    self.provider = provider
    loop = provider.loop
  }

  /// The share of an owner, by its number: that of its tags (`RequestTag`).
  public nonisolated func share(of owner: Int) -> ProviderShare { ProviderShare(self, owner: owner) }

  // MARK: - For the shares

  /// Adds a share. The first one starts the provider.
  fileprivate func start(_ owner: Int, report: @escaping @Sendable (PushProviderEvent) -> Void) {
    precondition(shares[owner] == nil, "an owner starts its share once")
    shares[owner] = Share(report: report)
    if isStarted {
      if capacity > 0 { report(.capacity(capacity)) }
    } else {
      isStarted = true
      provider.assumeIsolated { provider in
        provider.start { [weak self] event in self?.assumeIsolated { $0.didReport(event) } }
      }
    }
    divide(loop.now)
  }

  fileprivate func send(_ batch: [PushRequest], of owner: Int) {
    let now = loop.now
    guard shares[owner] != nil else { preconditionFailure("an owner sends after the end of its share") }
    shares[owner]?.waiting += batch.count
    shares[owner]?.lastSentAt = now
    if shares.count > 1 { divide(now) }
    provider.assumeIsolated { $0.send(batch) }
  }

  /// Ends a share when its requests have their results. The last share shuts the provider down.
  fileprivate func end(_ owner: Int, by deadline: Instant) async {
    guard shares[owner] != nil else { return }
    shares[owner]?.isEnding = true
    if shares.values.allSatisfy(\.isEnding) {
      await provider.shutDown(by: deadline)
      shares[owner] = nil
      return
    }
    if shares[owner]?.waiting != 0 {
      await withCheckedContinuation { shares[owner]?.onEnd = $0 }
    }
    shares[owner] = nil
    divide(loop.now)
  }

  // MARK: - Events

  private func didReport(_ event: PushProviderEvent) {
    switch event {
    case .results(let results): deliver(results)
    case .hedged(let tags):
      for (owner, tags) in Dictionary(grouping: tags, by: RequestTag.owner) {
        shares[owner]?.report(.hedged(tags))
      }
    case .capacity(let capacity):
      self.capacity = capacity
      for share in shares.values { share.report(event) }
    case .clockSkew, .renewed, .divided: for share in shares.values { share.report(event) }
    }
  }

  private func deliver(_ results: [PushResult]) {
    if shares.count == 1, let owner = shares.keys.first {
      deliver(results, to: owner)
    } else {
      for (owner, results) in Dictionary(grouping: results, by: { RequestTag.owner(of: $0.tag) }) {
        deliver(results, to: owner)
      }
      let now = loop.now
      if dividedAt + .milliseconds(100) <= now { divide(now) }
    }
  }

  private func deliver(_ results: [PushResult], to owner: Int) {
    guard let share = shares[owner] else { preconditionFailure("a result of a share that has ended") }
    shares[owner]?.waiting -= results.count
    share.report(.results(results))
    if share.waiting == results.count, let onEnd = share.onEnd {
      shares[owner]?.onEnd = nil
      onEnd.resume()
    }
  }

  /// Tells each owner among how many the capacity and the rate are divided, where that has changed.
  private func divide(_ now: Instant) {
    dividedAt = now
    let activeCount = shares.values.count { $0.isActive(now) }
    for (owner, share) in shares {
      let parts = max(1, share.isActive(now) ? activeCount : activeCount + 1)
      guard parts != share.parts else { continue }
      shares[owner]?.parts = parts
      share.report(.divided(parts))
    }
  }
}

/// One owner's share in a provider.
public actor ProviderShare: PushProvider {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private let shared: SharedProvider
  private let owner: Int

  fileprivate init(_ shared: SharedProvider, owner: Int) {
    self.shared = shared
    self.owner = owner
    loop = shared.loop
  }

  public func start(report: @escaping @Sendable (PushProviderEvent) -> Void) {
    shared.assumeIsolated { $0.start(owner, report: report) }
  }

  public func send(_ batch: [PushRequest]) { shared.assumeIsolated { $0.send(batch, of: owner) } }

  public func withdraw(_ tags: Set<UInt64>) { shared.provider.assumeIsolated { $0.withdraw(tags) } }

  public func giveUp(on tags: Set<UInt64>) { shared.provider.assumeIsolated { $0.giveUp(on: tags) } }

  public func retryConnections() { shared.provider.assumeIsolated { $0.retryConnections() } }

  /// The condition of the provider, which all shares have in common.
  public var condition: ProviderCondition { shared.provider.assumeIsolated { $0.condition } }

  /// Returns when the requests of this share have their results. With the last share, the provider shuts down by `deadline`.
  public func shutDown(by deadline: Instant) async { await shared.end(owner, by: deadline) }
}

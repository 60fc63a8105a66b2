// One connection to the outbox's database that comes back by itself.

internal import Logging
internal import Runtime

/// Keeps a `PostgresChannel` open: connects, runs the set-up, and after a loss does it again with growing pauses.
///
/// Confined to its loop, owned by `PostgresOutbox`.
final class OutboxLink {
  /// Pauses before the next try to connect: 50 ms, doubling, at most 2 s.
  static func reconnectDelay(afterFailures failures: Int) -> Nanoseconds {
    .milliseconds(min(2_000, 50 << min(failures, 6)))
  }

  private let url: String
  private let applicationName: String
  private let setUp: [PostgresStatement]
  private let loop: EventLoop
  private var channel: PostgresChannel?
  private var failures = 0
  private var isClosed = false
  private var retryTimer: EventLoop.Timer?

  /// Called when the link is set up and can be used.
  var onUp: (() -> Void)?
  /// Called when it breaks, or could not be established (again).
  var onDown: ((PostgresError) -> Void)?
  /// Called for each notification.
  var onNotification: ((_ channel: String, _ payload: String) -> Void)?

  init(url: String, applicationName: String, setUp: [PostgresStatement], loop: EventLoop) {
    self.url = url
    self.applicationName = applicationName
    self.setUp = setUp
    self.loop = loop
  }

  /// Called for each answer, with the time it took.
  var onRoundTrip: ((PostgresStatement, Nanoseconds) -> Void)?

  private(set) var isUp = false
  /// How often it came back after a loss.
  private(set) var reconnects = 0
  private var hasBeenUp = false

  /// Statements without an answer yet.
  var pendingCount: Int { channel?.pendingCount ?? 0 }

  func open() {
    guard !isClosed else { return }
    let channel = PostgresChannel(url: url, applicationName: applicationName, loop: loop) { [weak self] error in
      guard let self else { return }
      if let error { fail(error) } else { runSetUp() }
    }
    channel.onLoss = { [weak self] in self?.fail($0) }
    channel.onNotification = { [weak self] in self?.onNotification?($0, $1) }
    self.channel = channel
  }

  func close() {
    isClosed = true
    isUp = false
    retryTimer?.cancel()
    channel?.close()
    channel = nil
  }

  /// Executes a statement; fails at once while the link is down.
  func query(
    _ statement: PostgresStatement, _ parameters: PostgresParameters = PostgresParameters(),
    isolation: isolated any Actor
  ) async throws(PostgresError) -> PostgresResult {
    let channel = try usableChannel()
    let asked = loop.now
    let result = try await channel.query(statement, parameters, isolation: isolation)
    onRoundTrip?(statement, loop.now - asked)
    return result
  }

  /// As `query`, with a statement without parameters behind it in the same round trip; nil when only that one failed.
  func query(
    _ statement: PostgresStatement, _ parameters: PostgresParameters, then next: PostgresStatement,
    isolation: isolated any Actor
  ) async throws(PostgresError) -> (PostgresResult, next: PostgresResult?) {
    let channel = try usableChannel()
    let asked = loop.now
    let (first, second): (Result<PostgresResult, PostgresError>?, PostgresResult?) =
      await withCheckedContinuation { continuation in
        var first: Result<PostgresResult, PostgresError>?
        channel.submit(statement, parameters) { [loop, onRoundTrip] in
          first = $0
          if case .success = $0 { onRoundTrip?(statement, loop.now - asked) }
        }
        channel.submit(next, PostgresParameters()) { continuation.resume(returning: (first, try? $0.get())) }
      }
    guard let first else { preconditionFailure("a channel answers in order") }
    return (try first.get(), second)
  }

  private func usableChannel() throws(PostgresError) -> PostgresChannel {
    guard isUp, let channel else {
      throw PostgresError(.connectionLost, "the database cannot be reached at the moment")
    }
    return channel
  }

  private func runSetUp() {
    var left = setUp.count
    for statement in setUp {
      channel?.submit(statement, PostgresParameters()) { [weak self] outcome in
        guard let self else { return }
        if case .failure(let error) = outcome { return fail(error) }
        left -= 1
        if left == 0 { didSetUp() }
      }
    }
  }

  private func didSetUp() {
    failures = 0
    isUp = true
    if hasBeenUp { reconnects += 1 }
    hasBeenUp = true
    onUp?()
  }

  private func fail(_ error: PostgresError) {
    guard !isClosed, retryTimer?.isPending != true else { return }
    isUp = false
    channel?.close()
    channel = nil
    let delay = Self.reconnectDelay(afterFailures: failures)
    failures += 1
    retryTimer = loop.schedule(at: loop.now + delay) { [weak self] in self?.open() }
    onDown?(error)
  }
}

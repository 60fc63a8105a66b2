// One connection to the outbox's database that reconnects by itself.

internal import Logging
internal import Runtime

/// Keeps a `PostgresPipeline` open: connects and runs the set-up, and after a loss repeats both with growing pauses. While there are
/// no statements it sends a probe of its own, so that a connection that died silently is replaced before it is needed.
///
/// A connection that replaces another first ends the other's session, if that still does something. A proxy that stands still after
/// half a statement keeps that session's transaction open, with its locks, and no timeout of the server ends it.
///
/// Confined to its loop, owned by `PostgresOutbox`.
final class OutboxLink {
  /// Maximum silence of the server while it is a statement's turn. It is longer than the server's `statement_timeout`.
  static let patience = Nanoseconds.seconds(7)
  /// The same for a probe.
  static let probePatience = Nanoseconds.seconds(2)
  /// How long a link is idle before it sends a probe.
  static let probeInterval = Nanoseconds.seconds(1)
  /// After a connection that lasted at least this long, the pauses start at the beginning.
  private static let steadyAfter = Nanoseconds.seconds(2)

  /// Pauses before the next try to connect: 50 ms, doubling, at most 2 s.
  static func reconnectDelay(afterFailures failures: Int) -> Nanoseconds {
    .milliseconds(min(2_000, 50 << min(failures, 6)))
  }

  /// The statements that set up a session before it is used.
  struct SetUp {
    /// The link is up only if all of them succeed.
    var required: [PostgresStatement]
    /// The link is up even if the server refuses them.
    var optional: [PostgresStatement] = []
  }

  private let url: String
  private let applicationName: String
  private let setUp: SetUp
  private let loop: EventLoop
  private let resolver: NameResolver
  private var dialer: PostgresDialer?
  private var channel: PostgresPipeline?
  private var failures = 0
  private var isClosed = false
  private var retryTimer: EventLoop.Timer?
  private var probeTimer: EventLoop.Timer?
  private var upSince = Instant(nanoseconds: .min)

  /// Called when the link is set up and can be used.
  var onUp: (() -> Void)?
  /// Called when it breaks, or could not be established (again).
  var onDown: ((PostgresError) -> Void)?
  /// Called for each notification.
  var onNotification: ((_ channel: String, _ payload: String) -> Void)?
  /// Called for each answer, with the time it took.
  var onRoundTrip: ((PostgresStatement, Nanoseconds) -> Void)?

  init(url: String, applicationName: String, setUp: SetUp, loop: EventLoop, resolver: NameResolver = .system) {
    self.url = url
    self.applicationName = applicationName
    self.setUp = setUp
    self.loop = loop
    self.resolver = resolver
  }

  private(set) var isUp = false
  /// How often it reconnected after a loss.
  private(set) var reconnects = 0
  private var hasBeenUp = false
  /// Statements that the server refused for good when they were sent last, for example because a right is missing, and why.
  private(set) var refusals: [String: String] = [:]
  /// Identity of the last session that the server told, so that the next one can end it.
  private var session: String?

  func open() {
    guard !isClosed else { return }
    dialer = PostgresDialer(url: url, applicationName: applicationName, loop: loop, resolver: resolver) {
      [weak self] in self?.didDial($0)
    }
    dialer?.start()
  }

  private func didDial(_ outcome: Result<PostgresPipeline, PostgresError>) {
    dialer = nil
    switch outcome {
    case .failure(let error): fail(error)
    case .success(let channel): adopt(channel)
    }
  }

  /// Closes for good. What it calls is forgotten: its owner is among it.
  func close() {
    isClosed = true
    isUp = false
    (onUp, onDown, onNotification, onRoundTrip) = (nil, nil, nil, nil)
    retryTimer?.cancel()
    probeTimer?.cancel()
    dialer?.cancel()
    dialer = nil
    channel?.close()
    channel = nil
  }

  /// Executes a statement. Fails at once with `unavailable` while the link is down.
  func query(
    _ statement: PostgresStatement, _ parameters: PostgresParameters = PostgresParameters(),
    patience: Nanoseconds = OutboxLink.patience, isolation: isolated any Actor
  ) async throws(OutboxError) -> PostgresResult {
    let channel = try usableChannel()
    let asked = loop.now
    do throws(PostgresError) {
      let result = try await channel.query(
        statement, parameters, patience: patience, leavesAtOnce: true, isolation: isolation)
      onRoundTrip?(statement, loop.now - asked)
      refusals[statement.name] = nil
      return result
    } catch {
      throw note(error, of: statement, channel)
    }
  }

  /// The same, followed by a statement without parameters in the same round trip. The second result is nil if only that one failed.
  func query(
    _ statement: PostgresStatement, _ parameters: PostgresParameters, patience: Nanoseconds = OutboxLink.patience,
    then next: PostgresStatement, isolation: isolated any Actor
  ) async throws(OutboxError) -> (PostgresResult, next: PostgresResult?) {
    let channel = try usableChannel()
    let asked = loop.now
    let (first, second): (Result<PostgresResult, PostgresError>?, PostgresResult?) =
      await withCheckedContinuation { continuation in
        var first: Result<PostgresResult, PostgresError>?
        channel.submit(statement, parameters, patience: patience) { [loop, onRoundTrip] in
          first = $0
          if case .success = $0 { onRoundTrip?(statement, loop.now - asked) }
        }
        channel.submit(next, PostgresParameters(), patience: patience) {
          continuation.resume(returning: (first, try? $0.get()))
        }
        channel.flush()
      }
    guard let first else { preconditionFailure("a channel answers in order") }
    do throws(PostgresError) {
      let result = try first.get()
      refusals[statement.name] = nil
      return (result, second)
    } catch {
      throw note(error, of: statement, channel)
    }
  }

  private func usableChannel() throws(OutboxError) -> PostgresPipeline {
    guard isUp, let channel, channel.isReady else {
      throw OutboxError(.unavailable, "the database cannot be reached at the moment")
    }
    return channel
  }

  /// Leaves a server that does not take writes, or no longer does. The next connection looks the name up again.
  private func note(_ error: PostgresError, of sent: PostgresStatement, _ channel: PostgresPipeline) -> OutboxError {
    if error.needsNewConnection, channel === self.channel { fail(error) }
    let failure = OutboxError(error)
    if failure.code == .refused { refusals[sent.name] = error.description }
    return failure
  }

  // MARK: - Coming up

  private func adopt(_ channel: PostgresPipeline) {
    channel.onLoss = { [weak self] in self?.fail($0) }
    channel.onNotification = { [weak self] in self?.onNotification?($0, $1) }
    self.channel = channel
    var left = 0
    func submit(
      _ statement: PostgresStatement, _ parameters: PostgresParameters = PostgresParameters(), isRequired: Bool,
      then use: ((PostgresResult) -> Void)? = nil
    ) {
      left += 1
      channel.submit(statement, parameters, patience: Self.patience) { [weak self] outcome in
        guard let self, channel === self.channel else { return }
        switch outcome {
        case .success(let result): use?(result)
        case .failure(let error): if isRequired { return fail(error) }
        }
        left -= 1
        if left == 0 { didSetUp() }
      }
    }
    if let session {
      var former = PostgresParameters()
      former.append(session)
      submit(OutboxStatements.endSession, former, isRequired: false)
    }
    submit(OutboxStatements.session, isRequired: false) { [weak self] in
      if $0.rowCount > 0 { self?.session = $0.text(0, 0) }
    }
    for statement in setUp.required { submit(statement, isRequired: true) }
    for statement in setUp.optional { submit(statement, isRequired: false) }
  }

  private func didSetUp() {
    guard channel?.isReady == true else { return }
    isUp = true
    upSince = loop.now
    if hasBeenUp { reconnects += 1 }
    hasBeenUp = true
    scheduleProbe()
    onUp?()
  }

  /// Closes the connection for the time of `pause`; then it reconnects.
  func rest(for pause: Nanoseconds, because error: PostgresError) { fail(error, pause: pause) }

  private func fail(_ error: PostgresError, pause: Nanoseconds? = nil) {
    guard !isClosed, retryTimer?.isPending != true else { return }
    if isUp, loop.now - upSince >= Self.steadyAfter { failures = 0 }
    isUp = false
    probeTimer?.cancel()
    let former = channel
    channel = nil
    former?.close()
    let delay = pause ?? Self.reconnectDelay(afterFailures: failures)
    if pause == nil { failures += 1 }
    retryTimer = loop.schedule(at: loop.now + delay) { [weak self] in self?.open() }
    onDown?(error)
  }

  // MARK: - Being up

  private func scheduleProbe() {
    probeTimer = loop.schedule(at: loop.now + Self.probeInterval) { [weak self] in
      guard let self, isUp, let channel else { return }
      if channel.pendingCount == 0, loop.now - channel.lastAnswer >= Self.probeInterval {
        channel.submit(OutboxStatements.probe, PostgresParameters(), patience: Self.probePatience) { _ in }
      }
      scheduleProbe()
    }
  }
}

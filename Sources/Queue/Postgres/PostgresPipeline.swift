// One libpq connection on an event loop: asynchronous, in pipeline mode, binary both ways.
//
// `submit` queues a statement. All statements queued in one turn of the loop leave in one write, and Postgres executes them in
// order. Each statement has a sync of its own, so it is a transaction of its own and an error does not affect the others.
//
// The class is confined to its loop and not Sendable: an actor on that loop owns it. `PostgresConnection` is the actor for
// general use.

internal import CLibPQ
internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// A connection that answers through callbacks, on its loop.
@safe final class PostgresPipeline {
  /// The result of a statement.
  typealias Completion = (Result<PostgresResult, PostgresError>) -> Void

  private enum State {
    case connecting
    case ready
    case closed
  }

  private let loop: EventLoop
  private let connection: OpaquePointer
  private var state = State.connecting
  private var watch: EventLoop.Watch?
  private var connectTimer: EventLoop.Timer?
  private var onConnect: ((PostgresError?) -> Void)?
  private var pending = PendingStatements()
  private var prepared: Set<String> = []
  private var answerTimer: EventLoop.Timer?
  private var answerTimerDue = Instant.distantFuture
  private var isFlushPlanned = false
  /// Whether a script runs. It runs outside pipeline mode and is then the only pending entry.
  private var isRunningScript = false

  /// Called once when the server's address has accepted the connection. The connection is not open yet.
  var onReach: (() -> Void)?
  /// Called for each notification on a channel we listen to.
  var onNotification: ((_ channel: String, _ payload: String) -> Void)?
  /// Called once when an established connection breaks; not after `close`.
  var onLoss: ((PostgresError) -> Void)?

  /// Starts to connect. `onConnect` is called once, with the error if it failed; the channel is then closed.
  ///
  /// - Parameters:
  ///   - url: a libpq connection string or URI.
  ///   - endpoint: the place of the URL to connect to. With nil libpq tries all of them and looks names up on the loop's thread.
  ///   - timeout: maximum time to connect in all.
  init(
    url: String, endpoint: PostgresEndpoint?, applicationName: String, loop: EventLoop, timeout: Nanoseconds,
    onConnect: @escaping (PostgresError?) -> Void
  ) {
    self.loop = loop
    self.onConnect = onConnect
    // These settings notice a dead peer in seconds, not in the system's two hours, and reject a server that takes no writes.
    // A setting of the URL overrides those before `dbname`, but not those behind it. An empty value sets nothing.
    let settings = [
      ("fallback_application_name", applicationName), ("keepalives_idle", "5"), ("keepalives_interval", "2"),
      ("keepalives_count", "3"), ("tcp_user_timeout", "5000"), ("client_encoding", "UTF8"),
      ("target_session_attrs", "read-write"), ("dbname", url), ("host", endpoint?.host ?? ""),
      ("hostaddr", endpoint?.address ?? ""), ("port", endpoint?.port ?? ""),
    ]
    unsafe connection = unsafe Self.start(settings.map(\.0), settings.map(\.1))
    // libpq would write the server's notices to standard error, and they may quote data.
    unsafe PQsetNoticeProcessor(connection, { _, _ in }, nil)
    // With the SQLSTATE of a refusal, which libpq gives in no other way.
    _ = unsafe PQsetErrorVerbosity(connection, PQERRORS_VERBOSE)
    guard unsafe PQstatus(connection) != CONNECTION_BAD else {
      let error = unsafe PostgresError.connectionFailure(.connectionFailed, connection)
      loop.atEndOfTurn { [self] in finishConnecting(error) }
      return
    }
    connectTimer = loop.schedule(at: loop.now + timeout) { [weak self] in
      self?.finishConnecting(
        PostgresError(.connectionFailed, "connecting to Postgres took longer than \(timeout.seconds) s"))
    }
    rewatch(for: .writable)
  }

  deinit {
    unsafe PQfinish(connection)
  }

  var isReady: Bool { state == .ready }

  /// Statements without an answer yet.
  var pendingCount: Int { pending.count }

  /// When the server last answered a statement.
  var lastAnswer: Instant { pending.lastAnswer }

  /// Queues a statement. The completion is called on the loop, never inside this call.
  ///
  /// - Parameter patience: maximum silence of the server while it is this statement's turn. After that the connection is closed and
  ///   every pending statement fails. libpq alone would wait for minutes if something on the way forgot the connection.
  func submit(
    _ statement: PostgresStatement, _ parameters: PostgresParameters, patience: Nanoseconds? = nil,
    _ completion: @escaping Completion
  ) {
    guard state == .ready, !isRunningScript else {
      let error = PostgresError(.connectionLost, "the connection to Postgres is not open")
      return loop.atEndOfTurn { completion(.failure(error)) }
    }
    var isSent = true
    let isNew = prepared.insert(statement.name).inserted
    if isNew {
      let types = parameters.types.map(\.rawValue)
      isSent = unsafe PQsendPrepare(connection, statement.name, statement.sql, Int32(types.count), types) == 1
    }
    isSent = isSent && send(statement, parameters)
    isSent = unsafe isSent && PQpipelineSync(connection) == 1
    pending.append(
      PendingStatement(
        completion: completion, asked: loop.now, patience: patience, unconfirmed: isNew ? statement.name : nil))
    awaitAnswer()
    guard isSent else { return lose(unsafe .connectionFailure(.connectionLost, connection)) }
    planFlush()
  }

  /// `submit` for code that awaits.
  ///
  /// - Parameter leavesAtOnce: whether to send it before the loop does anything else in this turn, so that the server works
  ///   meanwhile.
  func query(
    _ statement: PostgresStatement, _ parameters: PostgresParameters, patience: Nanoseconds? = nil,
    leavesAtOnce: Bool = false, isolation: isolated any Actor
  ) async throws(PostgresError) -> PostgresResult {
    let outcome: Result<PostgresResult, PostgresError> = await withCheckedContinuation { continuation in
      submit(statement, parameters, patience: patience) { continuation.resume(returning: $0) }
      if leavesAtOnce { flush() }
    }
    return try outcome.get()
  }

  /// Runs several statements as one script. The server runs them in one transaction. Nothing else may be pending.
  func runScript(_ sql: String, _ completion: @escaping Completion) {
    precondition(pending.isEmpty, "a script needs the connection for itself")
    guard state == .ready, unsafe PQexitPipelineMode(connection) == 1, unsafe PQsendQuery(connection, sql) == 1 else {
      let error = PostgresError(.connectionLost, "the connection to Postgres is not open")
      return loop.atEndOfTurn { completion(.failure(error)) }
    }
    isRunningScript = true
    pending.append(PendingStatement(completion: completion, asked: loop.now))
    planFlush()
  }

  /// Closes at once. Pending statements fail with `connectionLost`.
  func close() {
    guard state != .closed else { return }
    onLoss = nil
    onConnect = nil
    shut(PostgresError(.connectionLost, "the connection to Postgres was closed"))
  }

  // MARK: - Connecting

  /// The first statement of every session: what others have created in `public`, or in another schema of the login's path, never
  /// takes the place of a built-in function, operator or cast. Without a name, so that nothing is left behind in a pooler's session.
  static let pinSearchPath = PostgresStatement(name: "", sql: "set search_path = pg_catalog")

  private static func start(_ keywords: [String], _ values: [String]) -> OpaquePointer {
    let keywordCopies = unsafe keywords.map { unsafe strdup($0) }
    let valueCopies = unsafe values.map { unsafe strdup($0) }
    defer { unsafe (keywordCopies + valueCopies).forEach { unsafe free($0) } }
    let keywordPointers = unsafe keywordCopies.map { unsafe UnsafePointer($0) } + [nil]
    let valuePointers = unsafe valueCopies.map { unsafe UnsafePointer($0) } + [nil]
    guard let connection = unsafe PQconnectStartParams(keywordPointers, valuePointers, 1) else {
      preconditionFailure("out of memory")
    }
    return unsafe connection
  }

  private func advanceConnecting() {
    let step = unsafe PQconnectPoll(connection)
    let isReached = unsafe ![CONNECTION_NEEDED, CONNECTION_STARTED, CONNECTION_BAD].contains(PQstatus(connection))
    if isReached, let onReach {
      self.onReach = nil
      onReach()
    }
    switch step {
    case PGRES_POLLING_READING: rewatch(for: .readable)
    case PGRES_POLLING_WRITING: rewatch(for: .writable)
    case PGRES_POLLING_OK:
      guard unsafe PQsetnonblocking(connection, 1) == 0, unsafe PQenterPipelineMode(connection) == 1 else {
        return finishConnecting(unsafe .connectionFailure(.connectionFailed, connection))
      }
      state = .ready
      rewatch(for: .readable)
      submit(Self.pinSearchPath, PostgresParameters()) { [weak self] outcome in
        switch outcome {
        case .success: self?.finishConnecting(nil)
        case .failure(let error): self?.finishConnecting(error)
        }
      }
    default:
      finishConnecting(unsafe .connectionFailure(.connectionFailed, connection))
    }
  }

  /// libpq may change its socket while it tries the addresses.
  private func rewatch(for interest: EventLoop.Readiness) {
    if let watch { loop.unwatch(watch) }
    watch = loop.watch(unsafe PQsocket(connection), for: interest) { [weak self] in self?.handle($0) }
  }

  private func finishConnecting(_ error: PostgresError?) {
    guard let onConnect else { return }
    self.onConnect = nil
    connectTimer?.cancel()
    if let error, state != .closed { shut(error) }
    onConnect(error)
  }

  // MARK: - Sending

  private func send(_ statement: PostgresStatement, _ parameters: PostgresParameters) -> Bool {
    let count = parameters.count
    let formats = [Int32](repeating: 1, count: count)
    let lengths = parameters.ranges.map { Int32($0?.count ?? 0) }
    return unsafe parameters.bytes.withUnsafeBytes { bytes in
      let empty: StaticString = ""  // a non-null pointer for values of no length
      let base = unsafe bytes.baseAddress ?? UnsafeRawPointer(empty.utf8Start)
      let values = unsafe parameters.ranges.map { range in
        unsafe range.map { unsafe (base + $0.lowerBound).assumingMemoryBound(to: CChar.self) }
      }
      return unsafe PQsendQueryPrepared(connection, statement.name, Int32(count), values, lengths, formats, 1) == 1
    }
  }

  private func planFlush() {
    guard !isFlushPlanned else { return }
    isFlushPlanned = true
    loop.atEndOfTurn { [weak self] in
      guard let self else { return }
      isFlushPlanned = false
      flush()
    }
  }

  /// Sends what is queued now. Otherwise it leaves at the end of the loop's turn.
  func flush() {
    guard state == .ready, let watch else { return }
    switch unsafe PQflush(connection) {
    case 0: loop.update(watch, for: .readable)
    case 1: loop.update(watch, for: [.readable, .writable])
    default: lose(unsafe .connectionFailure(.connectionLost, connection))
    }
  }

  // MARK: - Waiting

  /// Sets the timer so that it fires no later than when the first statement is overdue.
  private func awaitAnswer() {
    let due = pending.overdue
    guard due < answerTimerDue else { return }
    answerTimer?.cancel()
    answerTimerDue = due
    answerTimer = loop.schedule(at: due) { [weak self] in self?.checkAnswer() }
  }

  private func checkAnswer() {
    answerTimerDue = .distantFuture
    guard state == .ready else { return }
    // The loop may have been busy. Bytes that came meanwhile are not silence.
    handle(.readable)
    guard state == .ready else { return }
    if pending.overdue <= loop.now {
      lose(PostgresError(.connectionLost, "Postgres gave no answer for \(pending.first.patience?.seconds ?? 0) s"))
    } else {
      awaitAnswer()
    }
  }

  // MARK: - Receiving

  private func handle(_ readiness: EventLoop.Readiness) {
    switch state {
    case .connecting: advanceConnecting()
    case .closed: return
    case .ready:
      if readiness.contains(.readable) || readiness.contains(.hangup) {
        let isAlive = unsafe PQconsumeInput(connection) == 1
        readResults()
        readNotifications()
        guard isAlive else { return lose(unsafe .connectionFailure(.connectionLost, connection)) }
      }
      if readiness.contains(.writable) { flush() }
    }
  }

  private func readResults() {
    var wasNil = false
    while state == .ready, !pending.isEmpty, unsafe PQisBusy(connection) == 0 {
      guard let result = unsafe PQgetResult(connection) else {
        if isRunningScript { finishScript() }
        if wasNil { return }  // a broken connection returns only nil
        wasNil = true  // otherwise, in pipeline mode, one nil separates the answers
        continue
      }
      wasNil = false
      unsafe accept(result)
    }
  }

  private func accept(_ result: OpaquePointer) {
    switch unsafe PQresultStatus(result) {
    case PGRES_PIPELINE_SYNC:
      unsafe PQclear(result)
      finishFirst()
    case PGRES_TUPLES_OK, PGRES_COMMAND_OK:
      pending.first.unconfirmed = nil
      unsafe pending.first.result = PostgresResult(owning: result)
    case PGRES_FATAL_ERROR:
      if pending.first.error == nil { pending.first.error = unsafe .from(result) }
      unsafe PQclear(result)
    default:  // aborted by an earlier error of the same statement, or empty
      unsafe PQclear(result)
    }
  }

  private func finishFirst() {
    let first = pending.removeFirst(loop.now)
    awaitAnswer()
    if let name = first.unconfirmed { prepared.remove(name) }
    if let error = first.error {
      first.completion(.failure(error))
    } else if let result = first.result {
      first.completion(.success(result))
    } else {
      first.completion(.failure(PostgresError(.unexpectedResult, "the server answered a statement with nothing")))
    }
  }

  private func finishScript() {
    isRunningScript = false
    if unsafe PQenterPipelineMode(connection) != 1 {
      return lose(unsafe .connectionFailure(.connectionLost, connection))
    }
    finishFirst()
  }

  private func readNotifications() {
    while state == .ready, let notification = unsafe PQnotifies(connection) {
      let channel = unsafe String(cString: notification.pointee.relname)
      let payload = unsafe String(cString: notification.pointee.extra)
      unsafe PQfreemem(notification)
      onNotification?(channel, payload)
    }
  }

  // MARK: - Closing

  private func lose(_ error: PostgresError) {
    guard state != .closed else { return }
    let onLoss = self.onLoss
    self.onLoss = nil
    shut(error)
    onLoss?(error)
  }

  private func shut(_ error: PostgresError) {
    state = .closed
    connectTimer?.cancel()
    answerTimer?.cancel()
    if let watch { loop.unwatch(watch) }
    watch = nil
    let failed = pending.removeAll()
    let lost = PostgresError(.connectionLost, error.message)
    for entry in failed { entry.completion(.failure(entry.error ?? lost)) }
  }
}

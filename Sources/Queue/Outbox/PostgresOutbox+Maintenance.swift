// Statements that may wait: apps and lanes, tokens, reports for ops, and the jobs of the outbox.

internal import PushModel
public import Runtime

extension PostgresOutbox {
  /// The job whose results go into a gateway's counters. `push.take_tally` runs it.
  static let tallyJob = "tally"

  // MARK: - Jobs

  public func claimJob(_ kind: JobKind) async throws(OutboxError) -> String? {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    parameters.append(kind == .urgent ? "true" : "false")
    let result = try await link(for: kind).query(OutboxStatements.claimJob, parameters, isolation: self)
    return result.rowCount == 0 || result.isNull(0, 0) ? nil : result.text(0, 0)
  }

  public func run(_ kind: JobKind, job name: String) async throws(OutboxError) -> [Tally] {
    try checkAvailable()
    let link = link(for: kind)
    if name == Self.tallyJob {
      let result = try await link.query(OutboxStatements.takeTally, PostgresParameters(), isolation: self)
      return (0..<result.rowCount).compactMap { Tally(result, $0) }
    }
    var parameters = PostgresParameters()
    parameters.append(name)
    // If there is more to do, the job is due again at once.
    _ = try await link.query(OutboxStatements.runJob, parameters, isolation: self)
    return []
  }

  public func followUp(_ kind: JobKind, max: Int) async throws(OutboxError) -> Int {
    try checkAvailable()
    var parameters = PostgresParameters()
    parameters.append(kind == .urgent)
    parameters.append(Int32(clamping: max))
    return Int(try await link(for: kind).query(OutboxStatements.followUp, parameters, isolation: self).int32(0, 0))
  }

  /// Phones ring on until follow-ups of ended calls have run, so `jobs` has a deputy.
  private func link(for kind: JobKind) -> OutboxLink { kind == .urgent || !jobs.isUp ? maintenance : jobs }

  // MARK: - Apps and lanes

  /// Stores an app's settings in the database, where `enqueue` and escalation read them.
  ///
  /// - Parameters:
  ///   - ringSeconds: the ring window of calls without one of their own, 1 to 600.
  ///   - escalateAfterSeconds: when a user is tried on the next channel if no phone of theirs was heard; nil for never.
  ///   - atLeastOnce: whether a visible push whose fate is unknown is sent again.
  ///   - providers: the providers that the app has. Tokens of others are passed over. Nil for no change.
  ///   - known: the providers that this release knows. Others, which a gateway of a newer release has registered, stay.
  ///   - missedCalls: as `push.apps.missed_calls` has it (`off`, `newest`, `all`), or `default`. Nil for no change.
  ///   - voipCancel: whether a cancel goes to VoIP tokens, too. Nil for no change.
  ///   - messageText: whether the text of a message may be enqueued. Nil for no change.
  ///   - quota: how many calls, notifications and recipients the app may enqueue in a minute. Nil for no change.
  public func register(
    app: String, ringSeconds: Int, escalateAfterSeconds: Int? = nil, atLeastOnce: Bool = false,
    providers: [String]? = nil, known: [String]? = nil, missedCalls: String? = nil, voipCancel: Bool? = nil,
    messageText: Bool? = nil, quota: AppQuota? = nil
  ) async throws(OutboxError) {
    var parameters = PostgresParameters()
    parameters.append(app)
    parameters.append(Int32(ringSeconds))
    parameters.append(escalateAfterSeconds.map { Int32(clamping: $0) })
    parameters.append(atLeastOnce)
    parameters.append(providers.map(Self.array))
    parameters.append(missedCalls)
    parameters.append(voipCancel.map { $0 ? "true" : "false" })
    parameters.append(quota?.arrayText)
    parameters.append(options.name)
    parameters.append(known.map(Self.array))
    parameters.append(messageText.map { $0 ? "true" : "false" })
    _ = try await perform(OutboxStatements.registerApp, parameters)
  }

  /// Names as the text of an array.
  private static func array(_ names: [String]) -> String { "{\(names.joined(separator: ","))}" }

  /// The id of the lane of an app's provider.
  ///
  /// - Parameter service: which of several services behind the provider; empty if there is one.
  public func register(lane provider: String, service: String = "", app: String) async throws(OutboxError) -> Int16 {
    var parameters = PostgresParameters()
    parameters.append(app)
    parameters.append(provider)
    parameters.append(service)
    return try await perform(OutboxStatements.registerLane, parameters).int16(0, 0)
  }

  public func report(_ conditions: [LaneCondition]) async throws(OutboxError) {
    await lookAtRights()
    var parameters = PostgresParameters()
    parameters.append(try identity())
    parameters.append(conditions.map(\.lane))
    parameters.append(conditions.map { Int32(clamping: $0.window) })
    parameters.append(conditions.map { Int32(clamping: $0.capacity) })
    parameters.append(conditions.map { Int32(clamping: $0.inFlight) })
    parameters.append(conditions.map { Optional($0.circuit.word) })
    parameters.append(conditions.map { Int32(clamping: $0.wait.milliseconds) })
    parameters.append(conditions.map { Int32(clamping: $0.perSecond) })
    parameters.append(conditions.map(\.refusal?.sentence))
    parameters.append(conditions.map(\.refusal?.extent.rawValue))
    _ = try await perform(OutboxStatements.reportLanes, parameters)
  }

  // MARK: - Device tokens

  public func invalidate(_ tokens: [TokenInvalidation]) async throws(OutboxError) -> Int {
    var parameters = PostgresParameters()
    parameters.append(tokens.map(\.lane))
    parameters.append(texts: tokens) { $0.token }
    parameters.append(timestamps: tokens.map { $0.since.map { $0 * 1000 } })
    parameters.append(tokens.map { Optional($0.reason) })
    return Int(try await perform(OutboxStatements.invalidate, parameters).int64(0, 0))
  }

  public func hold(_ holds: [InvalidationHold]) async throws(OutboxError) -> Int {
    var count = 0
    for hold in holds {
      var parameters = PostgresParameters()
      parameters.append(hold.lane)
      parameters.append(Int32(clamping: hold.window.milliseconds))
      parameters.append(hold.note)
      count += Int(try await perform(OutboxStatements.holdInvalidation, parameters).int64(0, 0))
    }
    return count
  }

  public func correct(_ environments: [EnvironmentCorrection]) async throws(OutboxError) -> Int {
    var parameters = PostgresParameters()
    parameters.append(environments.map(\.lane))
    parameters.append(texts: environments) { $0.token }
    parameters.append(environments.map { Int16($0.environment.rawValue) })
    return Int(try await perform(OutboxStatements.correctEnvironment, parameters).int64(0, 0))
  }

  // MARK: - Provider tokens

  /// The token that all replicas use now; nil if there is none.
  public func providerToken(_ provider: String, _ name: String) async throws(OutboxError) -> StoredToken? {
    var parameters = PostgresParameters()
    parameters.append(provider)
    parameters.append(name)
    let result = try await perform(OutboxStatements.currentToken, parameters)
    return result.rowCount == 0 ? nil : StoredToken(result)
  }

  /// Offers a new token. Returns the token to use from now on, which is another one if that is younger than `ageMin`.
  public func offer(
    _ token: StoredToken, _ provider: String, _ name: String, ageMin: Nanoseconds
  ) async throws(OutboxError) -> StoredToken {
    var parameters = PostgresParameters()
    parameters.append(provider)
    parameters.append(name)
    parameters.append(text: token.value)
    parameters.append(timestamps: [token.mintedAtMilliseconds * 1000, token.renewAtMilliseconds * 1000])
    parameters.append(Int32(clamping: ageMin.milliseconds))
    return StoredToken(try await perform(OutboxStatements.offerToken, parameters))
  }

  // MARK: - Helpers

  /// Executes a statement that may wait and does not depend on which gateway sends it.
  func perform(
    _ statement: PostgresStatement, _ parameters: PostgresParameters
  ) async throws(OutboxError) -> PostgresResult {
    try await maintenance.query(statement, parameters, isolation: self)
  }
}

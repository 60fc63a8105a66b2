// The statements of webhooks, over one connection of their own.

internal import Logging
internal import Queue
internal import Runtime

/// The queue of one database: `push.webhook_event`.
struct WebhookQueue: Sendable {
  private static let register = PostgresStatement(
    name: "set_webhooks", sql: "select unnest(push.set_webhooks($1, $2, $3, $4))")
  private static let claim = PostgresStatement(
    name: "claim_webhooks", sql: "select id, app, attempt, tries, event, body from push.claim_webhooks($1, $2, $3, $4)")
  private static let settle = PostgresStatement(
    name: "settle_webhooks", sql: "select push.settle_webhooks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")

  private let pool: PostgresPool

  init(url: String, loop: EventLoop, logger: Logger) {
    pool = PostgresPool(
      url: url, loop: loop, timeoutSeconds: 10, logger: logger, applicationName: "push-gateway webhooks",
      connectionsMax: 1)
  }

  /// Closes the connection. The next statement opens another one.
  func close() async { await pool.close() }

  /// Writes which apps have a webhook.
  ///
  /// - Parameter others: apps without one.
  /// - Returns: apps that were left as they are, because another transaction has locked them.
  func register(_ endpoints: [WebhookEndpoint], others: [String]) async throws(PostgresPool.Failure) -> [String] {
    var parameters = PostgresParameters()
    parameters.append(endpoints.map { Optional($0.app) } + others.map(Optional.init))
    parameters.append(endpoints.map { Optional($0.host) } + others.map { _ in nil })
    parameters.append(endpoints.map { Optional($0.urlDigest) } + others.map { _ in nil })
    parameters.append(endpoints.map { $0.events?.joined(separator: ",") } + others.map { _ in nil })
    let result = try await pool.run(Self.register, parameters)
    return (0..<result.rowCount).map { result.text($0, 0) }
  }

  /// Claims events. It is not repeated after a broken connection: if the answer was lost, its events are due again after
  /// their lease.
  func claim(_ claims: [WebhookMachine.Claim]) async throws(PostgresPool.Failure) -> [ClaimedWebhook] {
    var parameters = PostgresParameters()
    parameters.append(claims.map { Optional($0.app) })
    parameters.append(claims.map { Optional($0.urlDigest) })
    parameters.append(claims.map { Int32(clamping: $0.room) })
    parameters.append(claims.map { Int32(clamping: $0.lease.milliseconds) })
    let result = try await pool.run(Self.claim, parameters, isRepeatable: false)
    return (0..<result.rowCount).map { row in
      ClaimedWebhook(
        id: result.int64(row, 0), app: result.text(row, 1), attempt: result.int32(row, 2), tries: result.int32(row, 3),
        event: result.text(row, 4), body: result.bytes(row, 5))
    }
  }

  /// Writes results. Writing them twice does no harm.
  func settle(_ results: [WebhookResult]) async throws(PostgresPool.Failure) {
    var parameters = PostgresParameters()
    parameters.append(results.map(\.id))
    parameters.append(results.map { Optional($0.app) })
    parameters.append(results.map { Optional($0.urlDigest) })
    parameters.append(results.map(\.attempt))
    parameters.append(results.map(\.verdict.rawValue))
    parameters.append(results.map(\.status))
    parameters.append(results.map(\.reason))
    parameters.append(results.map { Int32(clamping: $0.delay.milliseconds) })
    parameters.append(results.map { result in result.pause.map { Int32(clamping: $0.milliseconds) } })
    parameters.append(results.map { Optional($0.event) })
    _ = try await pool.run(Self.settle, parameters)
  }
}

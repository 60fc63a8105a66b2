// Runs the statements of requests, and turns the failures of the pool into answers of the API.

internal import HTTPTypes
internal import Logging
internal import Queue
internal import Runtime

extension PostgresPool {
  /// Runs a request's statement in a transaction of its own.
  ///
  /// - Parameter isRepeatable: whether to run the statement once more if the connection breaks.
  nonisolated func query(
    _ statement: PostgresStatement, _ parameters: PostgresParameters = PostgresParameters(),
    for purpose: Purpose = .own, isRepeatable: Bool = true
  ) async throws(APIProblem) -> PostgresResult {
    do {
      return try await run(statement, parameters, for: purpose, isRepeatable: isRepeatable)
    } catch {
      switch error {
      case .overloaded: throw .overloaded
      case .statement(let error):
        let problem = APIProblem(error)
        if problem.status.kind == .serverError {
          logger.error("A request's statement failed", metadata: ["reason": "\(error)", "of": "\(applicationName)"])
        }
        throw problem
      }
    }
  }
}

extension PostgresPool.Purpose {
  /// For a request that starts or stops ringing.
  static func call(_ client: APIClient) -> Self { Self(app: client.app) }
  /// For any other request.
  static func other(_ client: APIClient) -> Self { Self(isUrgent: false, app: client.app) }
}

extension APIProblem {
  /// The answer to a request whose statement failed.
  init(_ error: PostgresError) {
    guard error.code != .server(sqlState: "55P03") else {
      self = .unavailable(
        "database-unavailable", "another transaction has locked a row that is needed; try again", retryAfterSeconds: 1)
      return
    }
    if let seconds = error.retryAfterSeconds {
      self = .quotaExceeded("\(Self.sentence(error.message)); try again in \(seconds) s", retryAfterSeconds: seconds)
      return
    }
    guard !error.isTransient else {
      self = .unavailable("database-unavailable", "\(Self.reason(error)); try again", retryAfterSeconds: 1)
      return
    }
    guard case .server(let sqlState) = error.code else {
      self = .broken
      return
    }
    switch sqlState {
    case "P0002": self = .noSuchCall
    case "55R01": self = .ringsNoLonger
    case _ where PostgresError.isMissingObject(sqlState):
      self = .unavailable("database-unavailable", "the database is being migrated; try again", retryAfterSeconds: 5)
    case _ where sqlState.hasPrefix("22"): self = .fault(error.message)
    default: self = .broken
    }
  }

  private static func reason(_ error: PostgresError) -> String {
    switch error.shortage {
    case .locks: "the database's table of locks is full"
    case .memory: "the database has no memory left"
    case .disk: "the database's disk is full"
    case .connections: "the database accepts no more connections"
    case nil: "the database does not answer"
    }
  }

  /// A message of the database without the field in front of it.
  private static func sentence(_ message: String) -> Substring {
    message.firstRange(of: ": ").map { message[$0.upperBound...] } ?? message[...]
  }

  /// An error that the database raised about a value: `payload.from: must be a string (call c1)`.
  private static func fault(_ message: String) -> APIProblem {
    let end = message.firstRange(of: " (call ")?.lowerBound ?? message.endIndex
    guard let colon = message[..<end].firstIndex(of: ":") else {
      return .invalid("body", "the database refuses a value")
    }
    var field = message[..<colon]
    for table in ["push.outbox.", "push.devices."] where field.hasPrefix(table) { field.removeFirst(table.count) }
    let detail = message[colon..<end].dropFirst().drop { $0 == " " }
    return .invalid(Self.member(field), String(detail))
  }

  /// The API's name of a member that SQL calls by another name, such as `ring_seconds`.
  private static func member(_ name: Substring) -> String {
    switch name {
    case "call_id": "payload.callId"
    case "end_reason": "reason"
    case "answered_by": "userId"
    case "answered_device": "device"
    default:
      name.split(separator: "_").enumerated()
        .map { $0.offset == 0 ? String($0.element) : $0.element.prefix(1).uppercased() + $0.element.dropFirst() }
        .joined()
    }
  }
}

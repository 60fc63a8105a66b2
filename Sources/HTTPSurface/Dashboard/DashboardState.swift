// The state that every open page requests every two seconds. One query of the database serves all pages.

internal import Queue
internal import Runtime
internal import Settings

/// A database with what the dashboard needs of it.
struct DashboardDatabase: Sendable {
  /// Nil if there is only one.
  let name: String?
  let pool: PostgresPool
  let state: DashboardState
}

/// The state of the whole gateway as JSON, as one database shows it. It is at most a second old, or at most four times as old as the query took,
/// so that a busy database is queried less.
actor DashboardState {
  static let timeToLive = Nanoseconds.seconds(1)
  /// Number of minutes that are shown.
  static let minutesShown = 30
  /// Number of the latest minutes, the current one included, that can still change; they are what "now" means.
  static let minutesRecent = 5

  private static let minute: Int64 = 60_000

  private let database: PostgresPool
  private let name: String?
  private let names: [String]
  private let clock: any GatewayClock
  private var answer = Result<[UInt8], APIProblem>.failure(.broken)
  private var staleAt = Instant(nanoseconds: .min)
  private var question: Task<Result<[UInt8], APIProblem>, Never>?
  /// Incremented when the result of a query in progress is no longer wanted.
  private var generation = 0
  /// The minutes' JSON by the start of the minute, in milliseconds since 1970.
  private var minutes: [Int64: [UInt8]] = [:]
  private var lastMinute: Int64 = 0

  /// - Parameters:
  ///   - name: the name of the database; nil if there is only one.
  ///   - names: the names of all databases.
  init(database: PostgresPool, name: String? = nil, names: [String] = [], clock: any GatewayClock = SystemClock()) {
    self.database = database
    self.name = name
    self.names = names
    self.clock = clock
  }

  func json() async throws(APIProblem) -> [UInt8] {
    if clock.now() < staleAt { return try answer.get() }
    // Requests that arrive during the query wait for its result.
    let question = question ?? Task { [generation] in await ask(generation) }
    self.question = question
    return try await question.value.get()
  }

  /// Makes the next request query the database.
  func forget() {
    staleAt = Instant(nanoseconds: .min)
    question = nil
    generation += 1
  }

  private func ask(_ asked: Int) async -> Result<[UInt8], APIProblem> {
    let begun = clock.now()
    let answer: Result<[UInt8], APIProblem>
    do throws(APIProblem) {
      answer = .success(try await fresh())
    } catch {
      answer = .failure(error)
    }
    guard asked == generation else { return answer }
    self.answer = answer
    let took = clock.now() - begun
    staleAt = clock.now() + max(Self.timeToLive, took * 4)
    question = nil
    return answer
  }

  private func fresh() async throws(APIProblem) -> [UInt8] {
    let recent = try minutes(try await recentMinutes())
    let overview = try await database.query(DashboardStatements.overview).json(0, 0)
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("version")
    writer.string(GatewayVersion.current)
    if let name {
      writer.key("database")
      writer.string(name)
      writer.key("databases")
      writer.beginArray()
      for name in names { writer.string(name) }
      writer.endArray()
    }
    writer.key("minutesShown")
    writer.integer(Int64(Self.minutesShown))
    writer.key("minutesRecent")
    writer.integer(Int64(Self.minutesRecent))
    writer.key("thisMinute")
    writer.integer(lastMinute)
    writer.key("recent")
    writer.raw(recent)
    writer.key("minutes")
    writer.beginArray()
    for (_, json) in minutes.sorted(by: { $0.key < $1.key }) { writer.raw(json) }
    writer.endArray()
    writer.key("overview")
    writer.raw(overview)
    writer.endObject()
    return writer.bytes
  }

  private func recentMinutes() async throws(APIProblem) -> PostgresResult {
    let result = try await ask(minutes: Self.minutesRecent)
    // After a time without requests, all minutes are queried once.
    let isContinuous = result.int64(0, 0) - lastMinute < Int64(Self.minutesRecent - 1) * Self.minute
    if !isContinuous { _ = try minutes(await ask(minutes: Self.minutesShown)) }
    return result
  }

  private func ask(minutes count: Int) async throws(APIProblem) -> PostgresResult {
    var parameters = PostgresParameters()
    parameters.append(Int32(count - 1))
    return try await database.query(DashboardStatements.minutes, parameters)
  }

  /// Stores the minutes of a result, removes the oldest, and returns the sum of the result's minutes.
  private func minutes(_ result: PostgresResult) throws(APIProblem) -> [UInt8] {
    guard result.rowCount > 0 else { throw .broken }
    lastMinute = result.int64(0, 0)
    for row in 0..<result.rowCount - 1 { minutes[result.int64(row, 1)] = result.json(row, 2) }
    minutes = minutes.filter { $0.key > lastMinute - Int64(Self.minutesShown) * Self.minute }
    return result.json(result.rowCount - 1, 2)
  }
}

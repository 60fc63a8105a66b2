// From a request to an answer: path, caller, database. Every failure is answered with a problem (RFC 9457).

internal import HTTPTypes
internal import Hummingbird
internal import Logging
internal import NIOCore
internal import Queue
internal import Runtime
internal import Settings

/// Answers every request to `/` and below `/ui/`.
struct DashboardResponder: Sendable {
  /// `X-CSRF-Token`: the token of the session. Only the dashboard's own page knows it.
  static let tokenField = HTTPField.Name("X-CSRF-Token") ?? .authorization
  static let bodyMaxBytes = 4_096
  /// How far back a list of calls may reach: 7 days, the most that the page offers.
  static let minutesMax: Int32 = 7 * 24 * 60

  let gate: OpsGate
  let databases: [DashboardDatabase]
  let logger: Logger

  func respond(to request: Request, _ context: OpsRequestContext) async -> Response {
    var response: Response
    do throws(APIProblem) {
      response = try await request.method == .post ? change(request, context) : read(request, context)
    } catch {
      response = error.response
    }
    response.headers.append(contentsOf: DashboardAsset.securityFields)
    return request.method == .head ? response.createHeadResponse() : response
  }

  // MARK: - Reading

  private func read(_ request: Request, _ context: OpsRequestContext) async throws(APIProblem) -> Response {
    if let asset = DashboardAsset.at(request.uri.path) { return asset.response(to: request.headers[.ifNoneMatch]) }
    switch request.uri.path {
    case "/ui/state":
      try await gate.admitReader(request, context)
      return Self.json(try await database(of: request).state.json())
    case "/ui/calls":
      try await gate.admitReader(request, context)
      let isList = request.uri.queryParameters["since"] != nil
      return Self.json(try await isList ? callList(request) : calls(request))
    case "/ui/session": return session(of: try await gate.caller(of: request, context), request)
    default: throw .noSuchPath
    }
  }

  private func calls(_ request: Request) async throws(APIProblem) -> [UInt8] {
    let id = request.uri.queryParameters["id"].map(String.init) ?? ""
    guard 1...128 ~= id.unicodeScalars.count, !id.unicodeScalars.contains("\0") else {
      throw .invalid("id", "must have 1 to 128 characters")
    }
    var parameters = PostgresParameters()
    parameters.append(id)
    return try await database(of: request).pool.query(DashboardStatements.calls, parameters).json(0, 0)
  }

  /// The newest calls of an app, with a user, of an outcome. One list at a time, so that the state and what operators do need not wait.
  private func callList(_ request: Request) async throws(APIProblem) -> [UInt8] {
    var parameters = PostgresParameters()
    for (name, max) in [("app", 64), ("user", 256), ("outcome", 64)] {
      let text = request.uri.queryParameters[name[...]].map(String.init) ?? ""
      guard text.unicodeScalars.count <= max, !text.unicodeScalars.contains("\0") else {
        throw .invalid(name, "must have at most \(max) characters")
      }
      parameters.append(text)
    }
    let since = request.uri.queryParameters["since"]
    guard let minutes = since.flatMap({ Int32($0) }), 1...Self.minutesMax ~= minutes else {
      throw .invalid("since", "must be a number of minutes, from 1 to \(Self.minutesMax)")
    }
    parameters.append(minutes)
    return try await database(of: request).pool.query(DashboardStatements.callList, parameters, for: .ownRead)
      .json(0, 0)
  }

  /// The database that a request names; without a name, the first one.
  private func database(of request: Request) throws(APIProblem) -> DashboardDatabase {
    guard let name = request.uri.queryParameters["database"].map(String.init) else { return databases[0] }
    guard let database = databases.first(where: { $0.name == name }) else { throw .noSuchDatabase }
    return database
  }

  // MARK: - Changing

  private func change(_ request: Request, _ context: OpsRequestContext) async throws(APIProblem) -> Response {
    let fields = request.headers
    guard
      OpsHosts.isOurs(origin: fields[.origin], site: fields[.secFetchSite], authority: request.head.authority)
    else { throw .otherSite }
    guard gate.knowsAnybody else { throw .readOnly }
    if request.uri.path == "/ui/session" { return try await logIn(request, context) }
    guard let caller = try await gate.caller(of: request, context), let token = caller.token else { throw .loggedOut }
    guard let shown = fields[Self.tokenField], OpsKey.equal(Array(shown.utf8), Array(token.utf8)) else {
      throw .otherSite
    }
    switch request.uri.path {
    case "/ui/session/end":
      if case .session(let id) = caller.proof { await gate.login.close(id) }
      var response = session(of: nil, request)
      response.headers[.setCookie] = gate.cookie(for: request).header(nil)
      return response
    case "/ui/lanes": return try await switchLane(request, for: caller.name)
    case "/ui/calls": return try await operateCall(request, for: caller.name)
    default: throw .noSuchPath
    }
  }

  private func logIn(_ request: Request, _ context: OpsRequestContext) async throws(APIProblem) -> Response {
    guard gate.login.canLogIn else { throw .readOnly }
    let key = try APIBody(try await body(of: request), members: ["key"]).text("key", max: 1_024)
    let opened = try await gate.login.open(key, from: gate.client(of: request, context))
    let caller = OpsGate.Caller(name: opened.name, proof: .session(opened.id), token: opened.token)
    var response = session(of: caller, request)
    response.headers[.setCookie] = gate.cookie(for: request).header(opened.id)
    return response
  }

  private func switchLane(_ request: Request, for name: String) async throws(APIProblem) -> Response {
    let database = try database(of: request)
    let body = try APIBody(try await body(of: request), members: ["app", "provider", "paused", "note"])
    guard let isPaused = try body.optionalBoolean("paused") else { throw .invalid("paused", "must be true or false") }
    let (app, provider) = (try body.text("app", max: 64), try body.text("provider", max: 16))
    var parameters = PostgresParameters()
    parameters.append(name)
    parameters.append(app)
    parameters.append(provider)
    parameters.append(isPaused)
    parameters.append(try body.text("note", max: 500))
    let message: String
    do {
      message = try await database.pool.query(DashboardStatements.operateLane, parameters).text(0, 0)
    } catch  where error == .noSuchCall {
      throw .noSuchLane
    }
    logger.notice(
      "An operator paused or resumed a lane",
      metadata: [
        "operator": "\(name)", "app": "\(app)", "provider": "\(provider)", "paused": .stringConvertible(isPaused),
        "database": database.name.map { "\($0)" },
      ].compactMapValues(\.self))
    return await Self.done(message, in: database)
  }

  private func operateCall(_ request: Request, for name: String) async throws(APIProblem) -> Response {
    let database = try database(of: request)
    let body = try APIBody(try await body(of: request), members: ["app", "callId", "action", "note"])
    let (app, id) = (try body.text("app", max: 64), try body.text("callId", max: 128))
    let action = try body.text("action", max: 16)
    guard ["requeue", "void"].contains(action) else { throw .invalid("action", "must be requeue or void") }
    var parameters = PostgresParameters()
    for text in [name, app, id, action, try body.text("note", max: 500)] { parameters.append(text) }
    let message: String
    do {
      message = try await database.pool.query(DashboardStatements.operateCall, parameters).text(0, 0)
    } catch  where error == .noSuchCall {
      throw .noSuchCallOfApp
    }
    logger.notice(
      "An operator requeued or ended a call",
      metadata: [
        "operator": "\(name)", "app": "\(app)", "call_id": "\(id)", "action": "\(action)",
        "database": database.name.map { "\($0)" },
      ].compactMapValues(\.self))
    return await Self.done(message, in: database)
  }

  /// The answer to a change: a sentence that says what was done.
  private static func done(_ message: String, in database: DashboardDatabase) async -> Response {
    await database.state.forget()
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("message")
    writer.string(message)
    writer.endObject()
    return json(writer.bytes)
  }

  // MARK: - Parts

  private func body(of request: Request) async throws(APIProblem) -> [UInt8] {
    let type = request.headers[.contentType]?.prefix { $0 != ";" }.lowercased()
    guard type == "application/json" else { throw .notJSONType }
    do {
      return Array(try await request.body.collect(upTo: Self.bodyMaxBytes).readableBytesView)
    } catch is NIOTooManyBytesError {
      throw .tooLarge(limit: Self.bodyMaxBytes)
    } catch {
      throw .malformed
    }
  }

  /// What the page must know about its user.
  private func session(of caller: OpsGate.Caller?, _ request: Request) -> Response {
    var isSession = false
    if case .session = caller?.proof { isSession = true }
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("canLogIn")
    writer.boolean(gate.login.canLogIn)
    writer.key("canLogOut")
    writer.boolean(isSession)
    writer.key("mustLogIn")
    writer.boolean(gate.requiresLogin(request))
    for (name, text) in [("name", caller?.name), ("token", caller?.token)] {
      writer.key(Array(name.utf8))
      if let text { writer.string(text) } else { writer.null() }
    }
    writer.endObject()
    return Self.json(writer.bytes)
  }

  private static func json(_ bytes: [UInt8]) -> Response {
    Response(
      status: .ok, headers: [.contentType: "application/json", .cacheControl: "no-store"],
      body: ResponseBody(byteBuffer: ByteBuffer(bytes: bytes)))
  }
}

extension HTTPField.Name {
  fileprivate static let secFetchSite = HTTPField.Name("Sec-Fetch-Site") ?? .origin
}

// MARK: - The refusals

extension APIProblem {
  static let otherSite = APIProblem(
    status: .forbidden, name: "other-site", detail: "only the dashboard's own page may make changes")
  static let readOnly = APIProblem(
    status: .forbidden, name: "read-only", detail: "no ops key is configured, so nothing can be changed here")
  static let noSuchDatabase = APIProblem(
    status: .notFound, name: "unknown-database", detail: "the configuration has no database of this name")
  static let noSuchLane = APIProblem(status: .notFound, name: "unknown-lane", detail: "there is no such lane")
}

// From a request to an answer: host, path, session, database. Whatever goes wrong is answered as a problem.

internal import HTTPTypes
internal import Hummingbird
internal import NIOCore
internal import Queue
internal import Runtime

/// Answers everything at `/` and below `/ui/`.
struct DashboardResponder: Sendable {
  /// `X-CSRF-Token`: the token of the session, shown by our page and unknown to others.
  static let tokenField = HTTPField.Name("X-CSRF-Token") ?? .authorization
  static let bodyMaxBytes = 4_096

  let hosts: DashboardHosts
  let state: DashboardState
  let database: APIDatabase
  /// Nil: nobody can do more than look.
  let login: DashboardLogin?
  let cookie: DashboardCookie

  func respond(to request: Request) async -> Response {
    var response: Response
    do throws(APIProblem) {
      guard hosts.allows(authority: request.head.authority) else { throw .unknownHost }
      response = try await request.method == .post ? change(request) : read(request)
    } catch {
      response = error.response
    }
    response.headers.append(contentsOf: DashboardAsset.securityFields)
    return request.method == .head ? response.createHeadResponse() : response
  }

  // MARK: - Reading

  private func read(_ request: Request) async throws(APIProblem) -> Response {
    if let asset = DashboardAsset.at(request.uri.path) { return asset.response(to: request.headers[.ifNoneMatch]) }
    switch request.uri.path {
    case "/ui/state": return Self.json(try await state.json())
    case "/ui/calls": return Self.json(try await calls(request))
    case "/ui/session": return Self.session(canLogIn: login != nil, token: await login?.token(of: id(of: request)))
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
    return try await database.query(DashboardStatements.calls, parameters).json(0, 0)
  }

  // MARK: - Changing

  private func change(_ request: Request) async throws(APIProblem) -> Response {
    let fields = request.headers
    guard
      DashboardHosts.isOurs(
        origin: fields[.origin], site: fields[.secFetchSite], authority: request.head.authority)
    else { throw .otherSite }
    guard let login else { throw .readOnly }
    if request.uri.path == "/ui/session" {
      let key = try APIBody(try await body(of: request), members: ["key"]).text("key", max: 1_024)
      let (id, token) = try await login.open(key)
      return Self.session(canLogIn: true, token: token, cookie: cookie.header(id))
    }
    guard let id = id(of: request), let token = await login.token(of: id) else { throw .loggedOut }
    guard let shown = fields[Self.tokenField], DashboardKey.equal(Array(shown.utf8), Array(token.utf8)) else {
      throw .otherSite
    }
    switch request.uri.path {
    case "/ui/session/end":
      await login.close(id)
      return Self.session(canLogIn: true, token: nil, cookie: cookie.header(nil))
    case "/ui/lanes": return try await switchLane(try await body(of: request))
    default: throw .noSuchPath
    }
  }

  private func switchLane(_ bytes: [UInt8]) async throws(APIProblem) -> Response {
    let body = try APIBody(bytes, members: ["app", "provider", "paused", "note"])
    guard let isPaused = try body.optionalBoolean("paused") else { throw .invalid("paused", "must be true or false") }
    var parameters = PostgresParameters()
    parameters.append(try body.text("app", max: 64))
    parameters.append(try body.text("provider", max: 16))
    parameters.append(try body.text("note", max: 500))
    let statement = isPaused ? DashboardStatements.pauseLane : DashboardStatements.resumeLane
    let message: String
    do {
      message = try await database.query(statement, parameters).text(0, 0)
    } catch  where error == .noSuchCall {
      throw .noSuchLane
    }
    await state.forget()
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("message")
    writer.string(message)
    writer.endObject()
    return Self.json(writer.bytes)
  }

  // MARK: - Parts

  private func id(of request: Request) -> String? { cookie.id(in: request.headers[.cookie]) }

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

  private static func session(canLogIn: Bool, token: String?, cookie: String? = nil) -> Response {
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("canLogIn")
    writer.boolean(canLogIn)
    writer.key("token")
    if let token { writer.string(token) } else { writer.null() }
    writer.endObject()
    var response = json(writer.bytes)
    if let cookie { response.headers[.setCookie] = cookie }
    return response
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

// MARK: - The refusals there are

extension APIProblem {
  static let unknownHost = APIProblem(
    status: .misdirectedRequest, name: "unknown-host",
    detail: "the dashboard does not answer to this name; dashboard.hosts lists those it does")
  static let otherSite = APIProblem(
    status: .forbidden, name: "other-site", detail: "changes are taken from the dashboard's own page only")
  static let readOnly = APIProblem(
    status: .forbidden, name: "read-only", detail: "there is no ops key, so nothing can be changed here")
  static let loggedOut = APIProblem(
    status: .unauthorized, name: "logged-out", detail: "log in with the ops key first",
    headers: [.wwwAuthenticate: "Session"])
  static let noSuchLane = APIProblem(status: .notFound, name: "unknown-lane", detail: "there is no such lane")
}

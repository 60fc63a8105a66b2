// The paths of other push servers: whether they are on, and who may use them.

internal import HTTPTypes
internal import Hummingbird
internal import Queue
internal import Runtime
internal import Settings

/// The paths of Matrix's Push Gateway API and of gorush. Their clients usually have no key, so their addresses count.
struct APIFronts: Sendable {
  /// Largest body of a homeserver's request: an event may have 64 KiB, and JSON may need several bytes for one.
  static let matrixBodyMaxBytes = 524_288

  /// The homeservers; nil: Matrix's path is off.
  let matrixNetworks: [IPRange]?
  /// Nil: gorush's path is off.
  let gorushSettings: GatewayConfiguration.Gorush?
  private let matrix: MatrixFront
  private let gorush: GorushFront

  init(
    _ settings: GatewayConfiguration.API, database: PostgresPool, enqueuer: APIEnqueuer, backlog: APIBacklog,
    apps: APIApps, clock: any GatewayClock = SystemClock()
  ) {
    matrixNetworks = settings.matrixNetworks
    gorushSettings = settings.gorush
    matrix = MatrixFront(database: database, enqueuer: enqueuer, backlog: backlog, apps: apps, clock: clock)
    gorush = GorushFront(
      database: database, enqueuer: enqueuer, backlog: backlog, hidesTokens: settings.gorush?.hidesTokens ?? true,
      clock: clock)
  }

  /// Whether a path is on.
  func serves(_ operation: APIOperation) -> Bool {
    switch operation {
    case .notifyMatrix: matrixNetworks != nil
    case .pushGorush: gorushSettings != nil
    default: true
    }
  }

  /// What a path of another push server is for, whatever the method, and whether it is on or off; nil: no such path.
  static func operation(at path: String) -> APIOperation? {
    APIRoute.ofOtherServers[path]
  }

  /// Largest body of a request.
  func bodyMaxBytes(_ operation: APIOperation, otherwise max: Int) -> Int {
    operation == .notifyMatrix ? Swift.max(max, Self.matrixBodyMaxBytes) : max
  }

  /// The client of a request that needs no key.
  ///
  /// - Returns: nil if the request needs a key. A client of Matrix's path has an empty app: each pusher has its own.
  /// - Throws: 403 if the address may not use the path, or a browser sends the request: a page can make the browser of
  ///   somebody in the network send requests, and cannot prevent it from adding `Origin`.
  func client(
    of operation: APIOperation, headers: HTTPFields, peer: IPAddress
  ) throws(APIProblem) -> APIClient? {
    let networks: [IPRange]
    let app: String
    switch operation {
    case .notifyMatrix: (networks, app) = (matrixNetworks ?? [], "")
    case .pushGorush:
      guard headers[.authorization] == nil, let given = gorushSettings?.app else { return nil }
      (networks, app) = (gorushSettings?.networks ?? [], given)
    default: return nil
    }
    guard headers[.origin] == nil else {
      throw .notAllowed("this path may not be used by a browser, and the request has the header Origin")
    }
    guard networks.contains(where: { $0.contains(peer) }) else {
      throw .notAllowed("this path may not be used from the address that this request comes from")
    }
    return APIClient(keyID: nil, app: app)
  }

  func perform(
    _ operation: APIOperation, _ body: [UInt8], _ trace: Traceparent?, _ client: APIClient
  ) async throws(APIProblem) -> FrontAnswer? {
    switch operation {
    case .notifyMatrix: try await matrix.notify(body, trace)
    case .pushGorush: try await gorush.push(body, trace, client)
    default: nil
    }
  }
}

extension APIProblem {
  /// 403: the request has no key, and may not do without one.
  fileprivate static func notAllowed(_ detail: String) -> APIProblem {
    APIProblem(
      status: .forbidden, name: "address-not-allowed", detail: detail, refusal: APIRefusal(reason: .network))
  }
}

// Decides who may read what http.listen serves: users of this machine, and clients that have logged in.
//
// Reading needs no login only if nothing but this machine reaches the listener: it listens on loopback, and neither
// `http.hosts` nor `http.trusted_proxies` is set. A request with a header that proxies add needs a login even then.

import HTTPTypes
import Hummingbird
package import Logging
import NIOCore
package import Runtime
package import Settings

/// Tells apart operators, scrapers and other clients. Every path of `http.listen` uses it.
package struct OpsGate: Sendable {
  /// A client whose key, session or identity was verified.
  struct Caller: Equatable, Sendable {
    enum Proof: Equatable, Sendable {
      /// The id of a session.
      case session(String)
      /// An identity signed by the proxy.
      case identity
      /// A key in `Authorization`.
      case key
    }

    let name: String
    let proof: Proof
    /// The token that every change must send in addition, because other sites can make a browser send cookies; nil if
    /// this caller may not make changes.
    let token: String?
  }

  package let hosts: OpsHosts
  /// Whether reading needs a login from this machine as well.
  let needsLogin: Bool
  let login: OpsLogin
  private let proxies: TrustedProxies
  private let identity: IdentityVerifier?
  private let identityField: HTTPField.Name?
  private let isTLS: Bool
  /// A secret of this process, from which the tokens of users with a signed identity are made.
  private let secret: [UInt8]

  /// - Parameter isTLS: whether the listener has a certificate of its own.
  package init(
    access: GatewayConfiguration.OpsAccess, listener: GatewayConfiguration.Listener, isTLS: Bool = false,
    logger: Logger, clock: any GatewayClock = SystemClock()
  ) {
    hosts = OpsHosts(listener: listener, names: access.hosts)
    proxies = access.trustedProxies
    needsLogin = !hosts.isLoopback || !access.hosts.isEmpty || !proxies.isEmpty
    login = OpsLogin(keys: access.opsKeys, metricsKey: access.metricsKey, logger: logger, clock: clock)
    identity = access.identity.map {
      IdentityVerifier(rules: $0.rules, file: $0.keysFile, logger: logger, clock: clock)
    }
    identityField = access.identity.flatMap { HTTPField.Name($0.header) }
    self.isTLS = isTLS
    var source = SystemRandomNumberGenerator()
    secret = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &source) }
  }

  /// Whether any way to log in is configured.
  var knowsAnybody: Bool { login.canLogIn || identity != nil }

  // MARK: - Reading

  /// - Throws: 401 if the client must log in, 403 if no way to log in is configured.
  func admitReader(_ request: Request, _ context: OpsRequestContext) async throws(APIProblem) {
    guard requiresLogin(request) else { return HTTPConnectionGuard.LetIn.tell(context.channel) }
    guard try await caller(of: request, context) == nil else { return }
    throw knowsAnybody ? .loggedOut : .nobodyCanLogIn
  }

  /// Like `admitReader`, but also admits clients with the key of /metrics.
  func admitScraper(_ request: Request, _ context: OpsRequestContext) async throws(APIProblem) {
    guard requiresLogin(request) else { return HTTPConnectionGuard.LetIn.tell(context.channel) }
    guard await identified(request, context) == nil else { return }
    guard let key = Self.bearer(request) else {
      throw .unauthorized(
        "a key is needed: Authorization: Bearer and the key of http.metrics_key_file, or an ops key",
        challenge: "Bearer")
    }
    _ = try await login.holder(ofShown: key, from: client(of: request, context))
    HTTPConnectionGuard.LetIn.tell(context.channel)
  }

  /// Whether the client may read the reasons of a failed health check.
  func isReader(_ request: Request, _ context: OpsRequestContext) async -> Bool {
    do throws(APIProblem) {
      try await admitReader(request, context)
      return true
    } catch {
      return false
    }
  }

  /// Whether this request needs a login.
  func requiresLogin(_ request: Request) -> Bool {
    needsLogin || Self.forwardedFields.contains { request.headers[$0] != nil }
  }

  // MARK: - The caller

  /// - Throws: 401 or 429 for a wrong key in `Authorization`.
  func caller(of request: Request, _ context: OpsRequestContext) async throws(APIProblem) -> Caller? {
    if let caller = await identified(request, context) { return caller }
    guard let key = Self.bearer(request), login.canLogIn else { return nil }
    guard case .operatorNamed(let name) = try await login.holder(ofShown: key, from: client(of: request, context))
    else { return nil }
    HTTPConnectionGuard.LetIn.tell(context.channel)
    return Caller(name: name, proof: .key, token: nil)
  }

  /// The caller with a session or a signed identity; nil if there is neither.
  private func identified(_ request: Request, _ context: OpsRequestContext) async -> Caller? {
    for cookie in cookies(of: request) {
      guard let id = cookie.id(in: request.headers[.cookie]), let session = await login.session(id) else { continue }
      HTTPConnectionGuard.LetIn.tell(context.channel)
      return Caller(name: session.name, proof: .session(id), token: session.token)
    }
    guard let identity, let identityField, let shown = request.headers[identityField],
      let name = await identity.name(in: shown)
    else { return nil }
    HTTPConnectionGuard.LetIn.tell(context.channel)
    return Caller(name: name, proof: .identity, token: token(of: name))
  }

  /// The address of the client, behind trusted proxies.
  func client(of request: Request, _ context: OpsRequestContext) -> IPAddress {
    proxies.client(of: context.peer, forwardedFor: request.headers[Self.forwardedFor])
  }

  /// The CSRF token of a user with a signed identity. Only a page that can read the answers of this server knows it. It
  /// is valid until the process ends.
  private func token(of name: String) -> String {
    let digest = SHA256.digest(secret + SHA256.digest(Array(name.utf8)))
    return String(decoding: Base64URL.encode(digest), as: UTF8.self)
  }

  /// The value after `Bearer`.
  private static func bearer(_ request: Request) -> String? {
    let scheme = "bearer "
    guard let field = request.headers[.authorization], field.utf8.count <= 1_024,
      field.lowercased().hasPrefix(scheme)
    else { return nil }
    return String(field.dropFirst(scheme.count))
  }

  // MARK: - Cookies

  /// The cookie for a session that begins or ends with this request. It may be sent in clear text only if it does not
  /// leave this machine: the browser used a loopback name and `http:`.
  func cookie(for request: Request) -> OpsCookie {
    let isOverTLS = request.headers[.origin]?.lowercased().hasPrefix("https:") ?? false
    return OpsCookie(isSecure: isOverTLS || !mayBePlain(request))
  }

  /// The cookies that a session may use. Except on loopback, a cookie without `__Host-` could have been set by a site
  /// of the same domain.
  private func cookies(of request: Request) -> [OpsCookie] {
    [OpsCookie(isSecure: true)] + (mayBePlain(request) ? [OpsCookie(isSecure: false)] : [])
  }

  private func mayBePlain(_ request: Request) -> Bool {
    !isTLS && hosts.isLoopback && OpsHosts.isLoopback(authority: request.head.authority)
  }

  // MARK: - Names of fields

  private static let forwardedFor = field("X-Forwarded-For")
  /// The headers that proxies add.
  private static let forwardedFields =
    [forwardedFor] + ["Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via"].map(field)

  private static func field(_ name: String) -> HTTPField.Name {
    guard let field = HTTPField.Name(name) else { preconditionFailure("\(name) is a name") }
    return field
  }
}

extension APIProblem {
  static let loggedOut = APIProblem(
    status: .unauthorized, name: "logged-out", detail: "log in with an ops key first",
    headers: [.wwwAuthenticate: "Session"])
  static let nobodyCanLogIn = APIProblem(
    status: .forbidden, name: "no-login",
    detail: "other machines can reach this listener, so reading needs a login, but none is configured: "
      + "set dashboard.ops_key_file, dashboard.ops_keys or dashboard.identity")
}

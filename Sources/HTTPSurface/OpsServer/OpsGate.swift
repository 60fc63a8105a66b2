// Who may read what http.listen says: whoever is on this machine, or has shown who it is.
//
// Without a login only a listener is open that nothing but this machine reaches: on loopback, with no other name to be reached by and
// no proxy before it. A request that says it came through a proxy needs a login even there.

import HTTPTypes
import Hummingbird
package import Logging
import NIOCore
package import Runtime
package import Settings

/// Tells operators, scrapers and strangers apart. All paths of `http.listen` ask it.
package struct OpsGate: Sendable {
  /// Somebody who has shown who it is.
  struct Caller: Equatable, Sendable {
    enum Proof: Equatable, Sendable {
      /// A session's id.
      case session(String)
      /// A proxy's word.
      case identity
      /// A key in `Authorization`.
      case key
    }

    let name: String
    let proof: Proof
    /// What every change must show besides, for other sites can make a browser send the rest; nil: this caller changes nothing.
    let token: String?
  }

  package let hosts: OpsHosts
  /// Whether reading needs a login, from this machine, too.
  let needsLogin: Bool
  let login: OpsLogin
  private let proxies: TrustedProxies
  private let identity: IdentityVerifier?
  private let identityField: HTTPField.Name?
  private let isTLS: Bool
  /// Of this process: tokens of those whom a proxy vouches for.
  private let secret: [UInt8]

  /// - Parameter isTLS: whether the listener itself has a certificate.
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

  /// Whether anybody can show who they are.
  var knowsAnybody: Bool { login.canLogIn || identity != nil }

  // MARK: - Reading

  /// - Throws: 401 for whoever must log in first, 403 where nobody can.
  func admitReader(_ request: Request, _ context: OpsRequestContext) async throws(APIProblem) {
    guard mustShow(request) else { return HTTPConnectionGuard.LetIn.tell(context.channel) }
    guard try await caller(of: request, context) == nil else { return }
    throw knowsAnybody ? .loggedOut : .nobodyCanLogIn
  }

  /// As `admitReader`, and whoever has the key of /metrics.
  func admitScraper(_ request: Request, _ context: OpsRequestContext) async throws(APIProblem) {
    guard mustShow(request) else { return HTTPConnectionGuard.LetIn.tell(context.channel) }
    guard await identified(request, context) == nil else { return }
    guard let key = Self.bearer(request) else {
      throw .unauthorized(
        "a key is needed: Authorization: Bearer and the key of http.metrics_key_file, or an ops key",
        challenge: "Bearer")
    }
    _ = try await login.holder(ofShown: key, from: client(of: request, context))
    HTTPConnectionGuard.LetIn.tell(context.channel)
  }

  /// Whether the request is from somebody who may know what is wrong.
  func isReader(_ request: Request, _ context: OpsRequestContext) async -> Bool {
    do throws(APIProblem) {
      try await admitReader(request, context)
      return true
    } catch {
      return false
    }
  }

  /// Whether this request is read only for somebody who has shown who it is.
  func mustShow(_ request: Request) -> Bool {
    needsLogin || Self.forwardedFields.contains { request.headers[$0] != nil }
  }

  // MARK: - Who asks

  /// - Throws: 401 or 429 for a wrong key in `Authorization`.
  func caller(of request: Request, _ context: OpsRequestContext) async throws(APIProblem) -> Caller? {
    if let caller = await identified(request, context) { return caller }
    guard let key = Self.bearer(request), login.canLogIn else { return nil }
    guard case .operatorNamed(let name) = try await login.holder(ofShown: key, from: client(of: request, context))
    else { return nil }
    HTTPConnectionGuard.LetIn.tell(context.channel)
    return Caller(name: name, proof: .key, token: nil)
  }

  /// Who has a session, or is vouched for by the proxy.
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

  /// The address that asks, behind proxies that are trusted.
  func client(of request: Request, _ context: OpsRequestContext) -> IPAddress {
    proxies.client(of: context.peer, forwardedFor: request.headers[Self.forwardedFor])
  }

  /// Nobody knows it who cannot read our answers, and it is as good as this process lives.
  private func token(of name: String) -> String {
    let digest = SHA256.digest(secret + SHA256.digest(Array(name.utf8)))
    return String(decoding: Base64URL.encode(digest), as: UTF8.self)
  }

  /// The word after `Bearer`.
  private static func bearer(_ request: Request) -> String? {
    let scheme = "bearer "
    guard let field = request.headers[.authorization], field.utf8.count <= 1_024,
      field.lowercased().hasPrefix(scheme)
    else { return nil }
    return String(field.dropFirst(scheme.count))
  }

  // MARK: - Cookies

  /// The cookie for a session that begins or ends with this request. It travels in clear text only where it never leaves this
  /// machine: to a loopback name that the browser has asked for by `http:`.
  func cookie(for request: Request) -> OpsCookie {
    let isOverTLS = request.headers[.origin]?.lowercased().hasPrefix("https:") ?? false
    return OpsCookie(isSecure: isOverTLS || !mayBePlain(request))
  }

  /// Those that a session may have come with. One without `__Host-` any neighbouring site could have set, except on loopback.
  private func cookies(of request: Request) -> [OpsCookie] {
    [OpsCookie(isSecure: true)] + (mayBePlain(request) ? [OpsCookie(isSecure: false)] : [])
  }

  private func mayBePlain(_ request: Request) -> Bool {
    !isTLS && hosts.isLoopback && OpsHosts.isLoopback(authority: request.head.authority)
  }

  // MARK: - Names of fields

  private static let forwardedFor = field("X-Forwarded-For")
  /// What proxies add.
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
    detail: "other machines reach this listener, so reading needs a login, and there is none: "
      + "set dashboard.ops_key_file, dashboard.ops_keys or dashboard.identity")
}

// Refuses requests to other host names. This prevents DNS rebinding, where a hostile page points its own name at the
// gateway's address and then reads the answers.

import HTTPTypes
package import Hummingbird

/// Runs before all routes that are added after it, and before the answer to unknown paths.
package struct OpsHostCheck: OpsRoutes, RouterMiddleware {
  package typealias Context = OpsRequestContext

  /// Health checks of load balancers may use HTTP/1.0 and send no host. Browsers always send one.
  private static let probes: Set = ["/livez", "/readyz"]

  let hosts: OpsHosts

  package init(hosts: OpsHosts) {
    self.hosts = hosts
  }

  package func add(to router: OpsRouter) { router.add(middleware: self) }

  package func handle(
    _ request: Request, context: OpsRequestContext,
    next: (Request, OpsRequestContext) async throws -> Response
  ) async throws -> Response {
    let authority = request.head.authority ?? ""
    let isNamelessProbe = authority.isEmpty && Self.probes.contains(request.uri.path)
    guard isNamelessProbe || hosts.allows(authority: authority) else { return APIProblem.unknownHost.response }
    return try await next(request, context)
  }
}

extension APIProblem {
  static let unknownHost = APIProblem(
    status: .misdirectedRequest, name: "unknown-host",
    detail: "the gateway does not answer to this host name; http.hosts lists further names")
}

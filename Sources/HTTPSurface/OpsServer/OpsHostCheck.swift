// Every path of http.listen answers to its own names only: against DNS rebinding, where a hostile page gives its own name our
// address and then reads what we answer.

import HTTPTypes
package import Hummingbird

/// Stands before all routes that are added after it, and before what is not found.
package struct OpsHostCheck: OpsRoutes, RouterMiddleware {
  package typealias Context = OpsRequestContext

  /// Health checkers of load balancers may speak HTTP/1.0 and name no host. Browsers always name one.
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
    detail: "the gateway does not answer to this name; http.hosts lists those it does")
}

// Is it alive, is it ready.

import Hummingbird

/// Whether work can be done now.
package enum Readiness: Equatable, Sendable {
  case ready
  /// One sentence a reason; no secrets, but names of apps and hosts.
  case notReady([String])
}

/// - `GET /livez`: 200 while the process answers and its event loops turn, else 503 with those that do not. For what restarts it.
/// - `GET /readyz`: 200 while it takes calls from the outbox, else 503 with the reasons, one a line. For what routes to it or rolls
///   it out. A provider that answers nothing is told below `ready`, with status 200: a replica that is taken away for it helps
///   nobody, and all of them would be at once.
///
/// Both answer everybody, for probes log in nowhere. The reasons name apps and parts of the gateway: strangers get one word.
package struct HealthRoutes: OpsRoutes {
  /// Asked at each request; must answer soon.
  private let readiness: @Sendable () async -> Readiness
  /// Asked at each request, too: what is wrong although calls are taken, one sentence each.
  private let remarks: @Sendable () async -> [String]
  /// Asked at each request: the names of event loops that do not turn.
  private let silentLoops: @Sendable () async -> [String]
  /// Tells who may know the reasons; nil: everybody.
  private let gate: OpsGate?

  package init(
    readiness: @escaping @Sendable () async -> Readiness, remarks: @escaping @Sendable () async -> [String] = { [] },
    silentLoops: @escaping @Sendable () async -> [String] = { [] }, gate: OpsGate? = nil
  ) {
    self.readiness = readiness
    self.remarks = remarks
    self.silentLoops = silentLoops
    self.gate = gate
  }

  package func add(to router: OpsRouter) {
    router.get("livez") { request, context in
      let silent = await silentLoops()
      guard !silent.isEmpty else { return Response.lines(.ok, ["alive"]) }
      guard await mayKnow(request, context) else { return Response.lines(.serviceUnavailable, ["not alive"]) }
      return Response.lines(.serviceUnavailable, silent.map { "the event loop \($0) does not answer" })
    }
    router.get("readyz") { request, context in
      switch await readiness() {
      case .ready:
        guard await mayKnow(request, context) else { return Response.lines(.ok, ["ready"]) }
        return Response.lines(.ok, ["ready"] + (await remarks()))
      case .notReady(let reasons):
        guard await mayKnow(request, context) else { return Response.lines(.serviceUnavailable, ["not ready"]) }
        return Response.lines(.serviceUnavailable, reasons)
      }
    }
  }

  private func mayKnow(_ request: Request, _ context: OpsRequestContext) async -> Bool {
    await gate?.isReader(request, context) ?? true
  }
}

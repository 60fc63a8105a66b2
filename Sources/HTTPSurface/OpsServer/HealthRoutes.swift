// The health checks: whether the process is alive, and whether it is ready.

import Hummingbird

/// Whether the gateway can do its work now.
package enum Readiness: Equatable, Sendable {
  case ready
  /// One sentence for each reason. Reasons contain names of apps and hosts, but no secrets.
  case notReady([String])
}

/// - `GET /livez`: 200 while the process answers and its event loops run, otherwise 503 with the names of those that do
///   not. For a supervisor that restarts the process.
/// - `GET /readyz`: 200 while the gateway takes calls from the outbox, otherwise 503 with the reasons, one a line. For
///   load balancers and rollouts. If a provider does not answer or refuses credentials, the status is still 200 and a line
///   below `ready` says so: taking the replica away would not help, and every replica would be taken away at the same time.
///
/// Both answer everyone, because probes cannot log in. The reasons name apps and parts of the gateway, so callers that
/// may not read them get only `not alive` or `not ready`.
package struct HealthRoutes: OpsRoutes {
  /// Called for each request; must return soon.
  private let readiness: @Sendable () async -> Readiness
  /// Called for each request: problems that do not keep the gateway from taking calls, one sentence each.
  private let remarks: @Sendable () async -> [String]
  /// Called for each request: the names of event loops that do not run.
  private let silentLoops: @Sendable () async -> [String]
  /// Decides who may read the reasons; nil: everyone.
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

// The path that Prometheus scrapes.

import Hummingbird

/// `GET /metrics`: every series, as Prometheus text, or as OpenMetrics if the scraper prefers it.
package struct MetricsRoutes: OpsRoutes {
  private let metrics: Metrics
  /// The result of `/readyz`.
  private let readiness: @Sendable () async -> Readiness
  private let gate: OpsGate

  package init(metrics: Metrics, readiness: @escaping @Sendable () async -> Readiness, gate: OpsGate) {
    self.metrics = metrics
    self.readiness = readiness
    self.gate = gate
  }

  package func add(to router: OpsRouter) {
    router.get("metrics") { request, context in
      do throws(APIProblem) {
        try await gate.admitScraper(request, context)
      } catch {
        return error.response
      }
      let format = ExpositionFormat(accept: request.headers[.accept])
      return Response(
        status: .ok, headers: [.contentType: format.contentType, .cacheControl: "no-store"],
        body: ResponseBody(byteBuffer: ByteBuffer(bytes: await metrics.exposition(format, readiness: readiness()))))
    }
  }
}

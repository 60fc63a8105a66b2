// Where Prometheus asks.

import Hummingbird

/// `GET /metrics`: every series, as Prometheus text or, for whoever prefers it, OpenMetrics.
struct MetricsRoutes: OpsRoutes {
  let metrics: Metrics
  /// What `/readyz` says.
  let readiness: @Sendable () async -> Readiness
  let gate: OpsGate

  func add(to router: OpsRouter) {
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

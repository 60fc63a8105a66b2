// The paths of the HTTP API on the wrong listener.

internal import HTTPTypes
import Hummingbird
package import Settings

/// Answers requests for paths of the HTTP API with 404 and where the API listens, because the two listeners are easily confused.
package struct APIPathRoutes: OpsRoutes {
  private let text: String

  /// - Parameter api: the configuration of the API; nil: it is off.
  package init(api: GatewayConfiguration.API?) {
    text =
      switch api?.listener.port {
      case nil: "the HTTP API is off: set api.enabled to true; its address is api.listen, and this is http.listen"
      case 0: "the HTTP API has an address of its own, api.listen; this is http.listen"
      case let port?: "the HTTP API listens on port \(port) (api.listen); this is http.listen"
      }
  }

  package func add(to router: OpsRouter) {
    for path in ["v1/**"] + APIRoute.ofOtherServers.keys.map({ String($0.dropFirst()) }) {
      for method in [HTTPRequest.Method.get, .post, .put, .delete] {
        router.on(RouterPath(path), method: method) { _, _ in Response.lines(.notFound, [text]) }
      }
    }
  }
}

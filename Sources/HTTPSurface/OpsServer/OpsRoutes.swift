// The paths that parts of the gateway serve on `http.listen`.

package import Hummingbird

/// The table of paths of the ops listener.
package typealias OpsRouter = Router<OpsRequestContext>

/// A part of the gateway with paths on `http.listen`. It must not slow down the sending of pushes.
package protocol OpsRoutes: Sendable {
  /// Adds its paths.
  func add(to router: OpsRouter)
}

extension Response {
  /// Plain text that must not be cached, one element a line.
  static func lines(_ status: HTTPResponse.Status, _ lines: [String]) -> Response {
    Response(
      status: status, headers: [.contentType: "text/plain; charset=utf-8", .cacheControl: "no-store"],
      body: ResponseBody(byteBuffer: ByteBuffer(string: lines.joined(separator: "\n") + "\n")))
  }
}

// What a part of the gateway answers to whoever runs it, and the table in which it enters that.

package import Hummingbird

/// The table of paths of the ops listener.
package typealias OpsRouter = Router<OpsRequestContext>

/// A part of the gateway with paths of its own on `http.listen`. Nothing it does may reach into the hot path.
package protocol OpsRoutes: Sendable {
  /// Enters its paths.
  func add(to router: OpsRouter)
}

extension Response {
  /// Plain text that no cache keeps, a line each.
  static func lines(_ status: HTTPResponse.Status, _ lines: [String]) -> Response {
    Response(
      status: status, headers: [.contentType: "text/plain; charset=utf-8", .cacheControl: "no-store"],
      body: ResponseBody(byteBuffer: ByteBuffer(string: lines.joined(separator: "\n") + "\n")))
  }
}

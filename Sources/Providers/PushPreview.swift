// A request as people read it: what a provider would send for a push.

internal import Runtime

/// The request for one push, without its secrets. It is written by what writes the requests that are sent.
public struct PushPreview: Sendable {
  /// With scheme, host and path.
  public let url: String
  /// In lower case, without pseudo-header fields. The credentials are replaced by an ellipsis.
  public let headers: [(name: String, value: String)]
  /// Of web push: the content before its encryption.
  public let body: [UInt8]

  /// Stands for a secret.
  static let ellipsis = "…"

  init(url: String, headers: [(name: String, value: String)], body: [UInt8]) {
    self.url = url
    self.headers = headers
    self.body = body
  }

  init(_ format: some HTTP2PushFormat, _ request: PushRequest, loop: EventLoop) {
    var head = HTTP2RequestHead()
    body = format.write(
      request, authorization: Array("\(format.authorizationScheme)\(Self.ellipsis)".utf8), loop: loop, into: &head)
    var headers: [(name: String, value: String)] = []
    var pseudo: [String: String] = [:]
    head.decoded().forEach { name, value in
      let (name, value) = (String(decoding: name, as: UTF8.self), String(decoding: value, as: UTF8.self))
      if name.hasPrefix(":") { pseudo[name] = value } else { headers.append((name, value)) }
    }
    url = "\(pseudo[":scheme"] ?? "")://\(pseudo[":authority"] ?? "")\(pseudo[":path"] ?? "")"
    self.headers = headers
  }
}

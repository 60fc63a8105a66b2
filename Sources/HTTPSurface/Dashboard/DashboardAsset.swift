// The dashboard's files, from dashboard/ of the repository, and the pages of docs/operations, which are part of the binary.

internal import HTTPTypes
internal import Hummingbird
internal import NIOCore
internal import Runtime

/// One file of the dashboard.
struct DashboardAsset: Sendable {
  let path: String
  let type: String
  let bytes: [UInt8]
  /// Changes with the content.
  let entityTag: String

  init(path: String, type: String, text: String) {
    self.path = path
    self.type = type
    bytes = Array(text.utf8)
    entityTag = "\"" + String(decoding: SHA256.hexDigest(bytes).prefix(32), as: UTF8.self) + "\""
  }

  static let all: [DashboardAsset] = EmbeddedFiles.all.map { file in
    DashboardAsset(
      path: file.path == "index.html" ? "/" : "/ui/" + file.path, type: type(of: file.path), text: file.text)
  }

  private static func type(of path: String) -> String {
    switch path.split(separator: ".").last {
    case "html": return "text/html; charset=utf-8"
    case "css": return "text/css; charset=utf-8"
    case "js": return "text/javascript; charset=utf-8"
    case "md": return "text/plain; charset=utf-8"
    case "svg": return "image/svg+xml"
    default: preconditionFailure("dashboard/\(path): no content type is defined for this extension")
    }
  }

  private static let byPath = Dictionary(uniqueKeysWithValues: all.map { ($0.path, $0) })

  static func at(_ path: String) -> DashboardAsset? { byPath[path] }

  /// - Parameter known: the value of `If-None-Match`.
  func response(to known: String?) -> Response {
    var headers: HTTPFields = [.eTag: entityTag, .cacheControl: "no-cache"]
    let tags = (known ?? "").split(separator: ",").map { $0.drop { $0 == " " } }
    guard !tags.contains(where: { $0 == entityTag || $0 == "W/" + entityTag }) else {
      return Response(status: .notModified, headers: headers)
    }
    headers[.contentType] = type
    return Response(status: .ok, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(bytes: bytes)))
  }

  /// The page may load its own files and nothing else, send requests only to this server, and must not be framed by
  /// another page.
  static let securityFields: HTTPFields = {
    var fields = HTTPFields()
    let policy = [
      "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
      "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
      "trusted-types 'none'",
    ]
    for (name, value) in [
      ("Content-Security-Policy", policy.joined(separator: "; ")), ("X-Content-Type-Options", "nosniff"),
      ("Referrer-Policy", "no-referrer"), ("Cross-Origin-Opener-Policy", "same-origin"),
      ("Cross-Origin-Resource-Policy", "same-origin"), ("X-Frame-Options", "DENY"),
    ] {
      if let name = HTTPField.Name(name) { fields[name] = value }
    }
    return fields
  }()
}

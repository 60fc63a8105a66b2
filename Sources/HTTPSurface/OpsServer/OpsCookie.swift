// The session cookie. Scripts cannot read it, and other sites cannot make the browser send it.

internal import Runtime

/// The cookie that carries a session's id.
struct OpsCookie: Equatable, Sendable {
  /// Whether the browser may send the cookie over TLS only.
  let isSecure: Bool

  /// A browser accepts a name that begins with `__Host-` only from this host and over TLS.
  var name: String { isSecure ? "__Host-push-gateway" : "push-gateway" }

  /// The value of `Set-Cookie`; nil deletes the cookie.
  func header(_ id: String?) -> String {
    let age = id == nil ? 0 : OpsSessions.timeToLive.milliseconds / 1000
    return "\(name)=\(id ?? ""); Max-Age=\(age); Path=/; HttpOnly; SameSite=Strict" + (isSecure ? "; Secure" : "")
  }

  /// The id in a `Cookie` header.
  func id(in header: String?) -> String? {
    for pair in (header ?? "").split(separator: ";") {
      let parts = pair.drop { $0 == " " }.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      if parts.count == 2, parts[0] == name, !parts[1].isEmpty { return String(parts[1]) }
    }
    return nil
  }
}

// Checks which URLs may be called: https to any host, http only to loopback addresses, where nobody can eavesdrop.

internal import CCurl

/// Checks a URL with libcurl's own parser, so that the check and the request read the URL in the same way.
enum CurlAddress {
  enum Scheme: String {
    case https
    case http
  }

  /// Scheme, host and port of a URL.
  struct Origin: Hashable {
    var scheme: Scheme
    /// Without the brackets of an IPv6 address.
    var host: String
    var port: UInt16
  }

  /// The origin of a URL. Nil if the URL is malformed or may not be called: another scheme, http to another machine, or a user name
  /// or password in the URL.
  static func allowedOrigin(of url: String) -> Origin? {
    guard let parsed = unsafe curl_url() else { return nil }
    defer { unsafe curl_url_cleanup(parsed) }
    guard unsafe curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK,
      let scheme = unsafe part(CURLUPART_SCHEME, of: parsed).flatMap(Scheme.init),
      let host = unsafe part(CURLUPART_HOST, of: parsed),
      unsafe part(CURLUPART_USER, of: parsed) == nil, unsafe part(CURLUPART_PASSWORD, of: parsed) == nil
    else { return nil }
    guard scheme == .https || isLoopback(host) else { return nil }
    var port: UInt16 = scheme == .https ? 443 : 80
    if let text = unsafe part(CURLUPART_PORT, of: parsed) {
      guard let number = UInt16(text) else { return nil }
      port = number
    }
    let name = host.first == "[" ? String(host.dropFirst().dropLast()) : host
    return Origin(scheme: scheme, host: name, port: port)
  }

  private static func part(_ part: CURLUPart, of url: OpaquePointer) -> String? {
    var text: UnsafeMutablePointer<CChar>?
    guard unsafe curl_url_get(url, part, &text, 0) == CURLUE_OK, let text = unsafe text else { return nil }
    defer { unsafe curl_free(text) }
    return unsafe String(cString: text)
  }

  private static func isLoopback(_ host: String) -> Bool {
    if host == "localhost" || host == "[::1]" { return true }
    let bytes = host.split(separator: ".", omittingEmptySubsequences: false)
    return bytes.count == 4 && bytes[0] == "127" && bytes.allSatisfy { UInt8($0) != nil }
  }
}

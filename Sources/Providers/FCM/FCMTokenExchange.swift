// The OAuth exchange of an assertion for an access token: writes the request and reads the answer. No I/O.

internal import Runtime

/// developers.google.com/identity/protocols/oauth2/service-account, "Making the access token request".
enum FCMTokenExchange {
  /// A granted access token.
  struct Grant: Equatable {
    var value: [UInt8]
    /// The time for which it is valid, in seconds.
    var lifetimeSeconds: Int64
  }

  /// Maximum length of a token. Longer ones do not fit into a header.
  static let tokenLengthMax = 8 * 1024

  static let headers = [
    (name: "Content-Type", value: "application/x-www-form-urlencoded"), (name: "Accept", value: "application/json"),
  ]

  /// The form. An assertion consists of base64url and dots, which need no escaping.
  static func body(assertion: [UInt8]) -> [UInt8] {
    Array("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=".utf8) + assertion
  }

  /// Reads the answer. The error says what to check and quotes only Google's error code.
  static func read(_ response: CurlResponse) throws(ProviderTokenError) -> Grant {
    let json = try? JSONScanner(response.body)
    guard response.status == 200 else {
      let code = json.flatMap { json in
        json.member("error").map { SafeProviderText.reason($0, in: json) ?? "unreadable" }
      }
      throw ProviderTokenError(
        "the token endpoint answered \(response.status) (\(code ?? "no error code"))"
          + hint(status: response.status, code: code),
        refusal: [400, 401, 403, 404].contains(response.status) ? code : nil)
    }
    guard let json, let token = json.member("access_token").flatMap(json.string), !token.isEmpty,
      token.count <= tokenLengthMax, token.allSatisfy({ 0x21...0x7E ~= $0 }),
      let lifetime = json.member("expires_in").flatMap(json.integer), lifetime > 0
    else { throw ProviderTokenError("the token endpoint answered 200 without a usable access_token and expires_in") }
    if let type = json.member("token_type").flatMap(json.text), type.lowercased() != "bearer" {
      throw ProviderTokenError("the token endpoint granted a token that is not a bearer token")
    }
    return Grant(value: token, lifetimeSeconds: min(lifetime, 86_400))
  }

  private static func hint(status: UInt16, code: String?) -> String {
    switch code {
    case "invalid_grant": ": the key may have been deleted, the account disabled, or this machine's clock is wrong"
    case "invalid_client", "unauthorized_client", "invalid_scope": ": the service account may not send through Firebase"
    case _ where status == 404: ": check token_uri"
    default: ""
    }
  }
}

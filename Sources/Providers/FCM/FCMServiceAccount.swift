// The JSON file of a Google service account, and the signed assertion that is exchanged for access tokens.
//
// Sources: developers.google.com/identity/protocols/oauth2/service-account ("HTTP/REST").

public import Runtime

/// A Google service account with its private key.
public struct FCMServiceAccount: Sendable {
  /// The OAuth scope of the access tokens.
  static let scope: StaticString = "https://www.googleapis.com/auth/firebase.messaging"
  /// Maximum lifetime of an assertion, in seconds.
  static let assertionLifetime: Int64 = 3600

  /// The Firebase project through which messages are sent.
  public let projectID: String
  /// Claim `iss`.
  public let clientEmail: String
  /// Header `kid`.
  public let privateKeyID: String
  /// The URL where assertions are exchanged. Also claim `aud`.
  public let tokenURI: String
  /// The key of `private_key`, RSA.
  public let key: SigningKey

  public init(projectID: String, clientEmail: String, privateKeyID: String, tokenURI: String, key: SigningKey) {
    self.projectID = projectID
    self.clientEmail = clientEmail
    self.privateKeyID = privateKeyID
    self.tokenURI = tokenURI
    self.key = key
  }

  /// Reads the key file that Google's console creates for a service account.
  ///
  /// - Throws: `FCMServiceAccountError`, which names the file and the field.
  public static func load(
    file path: String, privacy: SecretFile.Privacy = .required
  ) throws(FCMServiceAccountError) -> FCMServiceAccount {
    let content: [UInt8]
    do {
      content = try SecretFile.read(path, privacy: privacy)
    } catch {
      throw FCMServiceAccountError(.file(error.reason), path: path)
    }
    return try FCMServiceAccount(json: content, path: path)
  }

  /// - Parameter path: where the text came from, for error messages.
  public init(json text: [UInt8], path: String) throws(FCMServiceAccountError) {
    if let kind = Self.kind(ofOther: String(decoding: text.prefix(4096), as: UTF8.self)) {
      throw FCMServiceAccountError(.otherFile(kind), path: path)
    }
    let json: JSONScanner
    do { json = try JSONScanner(text) } catch {
      throw FCMServiceAccountError(.notJSON(error, begins: text.first), path: path)
    }
    guard json.root.kind == .object else { throw FCMServiceAccountError(.notAnObject, path: path) }
    if json.member("type") == nil, let kind = Self.kind(ofOther: json) {
      throw FCMServiceAccountError(.otherFile(kind), path: path)
    }

    func field(_ name: StaticString) throws(FCMServiceAccountError) -> String {
      guard let value = json.member(name) else { throw FCMServiceAccountError(.missing(field: "\(name)"), path: path) }
      guard let text = json.text(value), !text.isEmpty else {
        throw FCMServiceAccountError(.notText(field: "\(name)"), path: path)
      }
      return text
    }

    guard try field("type") == "service_account" else { throw FCMServiceAccountError(.otherType, path: path) }
    projectID = try field("project_id")
    guard projectID.utf8.allSatisfy(Self.isProjectIDByte) else {
      throw FCMServiceAccountError(
        .malformed(field: "project_id", expected: "letters, digits, '-', '.' and ':'"), path: path)
    }
    clientEmail = try field("client_email")
    privateKeyID = try field("private_key_id")
    tokenURI = try field("token_uri")
    guard CurlAddress.allowedOrigin(of: tokenURI) != nil else {
      throw FCMServiceAccountError(.malformed(field: "token_uri", expected: "an https URL"), path: path)
    }
    let pem = try field("private_key")
    do {
      key = try SigningKey(pem: Array(pem.utf8), for: .rs256, source: "\(path) (private_key)")
    } catch {
      throw FCMServiceAccountError(.key(error), path: path)
    }
  }

  /// Which other file of Google's consoles this is; nil: none that is known.
  private static func kind(ofOther json: JSONScanner) -> String? {
    if json.member("project_info") != nil { return "google-services.json, which belongs into the Android app" }
    if json.member("web") != nil || json.member("installed") != nil { return "an OAuth client" }
    return nil
  }

  /// Which other credential of Google's, or form of the file, a text is; nil: none that is known.
  private static func kind(ofOther text: String) -> String? {
    let word = text.drop { $0.isWhitespace || $0 == "\"" }
    if word.hasPrefix("AAAA"), word.contains(":APA91") {
      return "a server key of the legacy FCM API, which Google has turned off"
    }
    if word.hasPrefix("AIza") { return "an API key, which sends no messages" }
    if word.hasPrefix("ya29.") { return "an access token, which expires within an hour" }
    if word.hasPrefix("ewo") || word.hasPrefix("eyJ") { return "base64 (base64 -d decodes it)" }
    return nil
  }

  /// The signed JWT that Google exchanges for an access token.
  ///
  /// - Parameter issuedAtSeconds: seconds since 1970.
  public func assertion(issuedAtSeconds: Int64) throws(SigningKeyError) -> [UInt8] {
    var header = JSONWriter()
    header.beginObject()
    header.key("alg")
    header.string("RS256" as StaticString)
    header.key("typ")
    header.string("JWT" as StaticString)
    header.key("kid")
    header.string(privateKeyID)
    header.endObject()
    var claims = JSONWriter()
    claims.beginObject()
    claims.key("iss")
    claims.string(clientEmail)
    claims.key("scope")
    claims.string(Self.scope)
    claims.key("aud")
    claims.string(tokenURI)
    claims.key("iat")
    claims.integer(issuedAtSeconds)
    claims.key("exp")
    claims.integer(issuedAtSeconds + Self.assertionLifetime)
    claims.endObject()
    return try JSONWebToken.sign(header: header.bytes, claims: claims.bytes, with: key)
  }

  /// Whether the byte needs no escaping in a path.
  private static func isProjectIDByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: ":"):
      true
    default: false
    }
  }
}

/// Why a service account file cannot be used. Names the file and the field, never a value.
public struct FCMServiceAccountError: Error, Equatable, CustomStringConvertible, Sendable {
  public enum Reason: Equatable, Sendable {
    case file(SecretFile.Failure.Reason)
    /// The first byte tells what it is instead.
    case notJSON(JSONError, begins: UInt8?)
    case notAnObject
    /// The file is for another kind of Google credential.
    case otherType
    /// Another file of Google's consoles, and what it is.
    case otherFile(String)
    case missing(field: String)
    case notText(field: String)
    case malformed(field: String, expected: String)
    case key(SigningKeyError)
  }

  public var reason: Reason
  public var path: String

  public init(_ reason: Reason, path: String) {
    self.reason = reason
    self.path = path
  }

  private static let expected =
    "the JSON key of a service account (Firebase console, project settings, service accounts, generate new private key)"

  public var description: String {
    switch reason {
    case .file(let failure): "service account file \(SecretFile.Failure(failure, path: path))"
    case .notJSON(let error, let first):
      switch first {
      case UInt8(ascii: "-"): "service account file \(path): is a key in PEM form: expected \(Self.expected)"
      case UInt8(ascii: "<"): "service account file \(path): is XML or HTML: expected \(Self.expected)"
      case 0xFF, 0xFE: "service account file \(path): is UTF-16 text: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"
      default: "service account file \(path): \(error)"
      }
    case .notAnObject: "service account file \(path): expected a JSON object"
    case .otherType:
      "service account file \(path): field type is not \"service_account\": expected \(Self.expected)"
    case .otherFile(let kind): "service account file \(path): is \(kind): expected \(Self.expected)"
    case .missing(let field): "service account file \(path): field \(field) is missing"
    case .notText(let field): "service account file \(path): field \(field) must be a string that is not empty"
    case .malformed(let field, let expected): "service account file \(path): field \(field): expected \(expected)"
    case .key(let error): "service account file: \(error)"
    }
  }
}

// Tests of service account files: valid ones, and the errors for others; and of the assertion, verified by PyJWT.

import Foundation
import HTTP2TestSupport
import Runtime
import Testing

@testable import Providers

/// A service account with a key made for this process.
enum FCMTestAccount {
  static let key = try! SigningKey.generate(for: .rs256)

  static var pem: String { String(decoding: try! key.privateKeyPEM(), as: UTF8.self).replacing("\n", with: "\\n") }

  static let fields: [(name: String, json: String)] = [
    ("type", #""service_account""#), ("project_id", #""porteiro-test""#), ("private_key_id", #""0123abcd""#),
    ("private_key", "\"\(pem)\""), ("client_email", #""push@porteiro-test.iam.gserviceaccount.com""#),
    ("token_uri", #""https://oauth2.googleapis.com/token""#), ("universe_domain", #""googleapis.com""#),
  ]

  /// The file, with the JSON of one field replaced; nil leaves the field out.
  static func json(replacing field: String = "", with value: String? = nil) -> [UInt8] {
    let members = fields.compactMap { name, json in
      name == field ? value.map { "\"\(name)\":\($0)" } : "\"\(name)\":\(json)"
    }
    return Array("{\(members.joined(separator: ",\n"))}".utf8)
  }

  static func account(tokenURI: String = "https://oauth2.googleapis.com/token") -> FCMServiceAccount {
    FCMServiceAccount(
      projectID: "porteiro-test", clientEmail: "push@porteiro-test.iam.gserviceaccount.com", privateKeyID: "0123abcd",
      tokenURI: tokenURI, key: key)
  }
}

@Suite(.timeLimit(.minutes(10))) struct FCMServiceAccountTests {
  @Test func `a service account file is read`() throws {
    let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString).path()
    try SecretFixture.write(FCMTestAccount.json(), to: file)
    defer { try? FileManager.default.removeItem(atPath: file) }
    let account = try FCMServiceAccount.load(file: file)
    #expect(account.projectID == "porteiro-test")
    #expect(account.clientEmail == "push@porteiro-test.iam.gserviceaccount.com")
    #expect(account.privateKeyID == "0123abcd")
    #expect(account.tokenURI == "https://oauth2.googleapis.com/token")
    #expect(account.key.source == "\(file) (private_key)")
  }

  @Test func `an independent library verifies the assertion`() throws {
    let account = FCMTestAccount.account()
    var verifier = IndependentJWTVerifier()
    try verifier.add(
      account.assertion(issuedAtSeconds: 1_700_000_000), key: account.key,
      header: #"{"alg":"RS256","typ":"JWT","kid":"0123abcd"}"#,
      claims: """
        {"iss":"push@porteiro-test.iam.gserviceaccount.com","scope":"https://www.googleapis.com/auth/firebase.messaging",\
        "aud":"https://oauth2.googleapis.com/token","iat":1700000000,"exp":1700003600}
        """)
    #expect(try verifier.verify() == "")
  }

  @Test(
    arguments: [
      ("type", nil, .missing(field: "type")), ("type", #""authorized_user""#, .otherType),
      ("project_id", nil, .missing(field: "project_id")), ("project_id", "7", .notText(field: "project_id")),
      ("project_id", #""""#, .notText(field: "project_id")),
      ("project_id", #""a/../b""#, .malformed(field: "project_id", expected: "letters, digits, '-', '.' and ':'")),
      ("client_email", nil, .missing(field: "client_email")),
      ("private_key_id", "null", .notText(field: "private_key_id")),
      ("token_uri", nil, .missing(field: "token_uri")),
      ("token_uri", #""http://example.com/token""#, .malformed(field: "token_uri", expected: "an https URL")),
      ("private_key", nil, .missing(field: "private_key")),
      (
        "private_key", #""secret""#,
        .key(
          SigningKeyError(
            .notAPrivateKey(PEMDiagnosis.text(of: Array("secret".utf8), expected: .privateKey)),
            source: "sa.json (private_key)"))
      ),
    ] as [(String, String?, FCMServiceAccountError.Reason)])
  func `the error for a faulty service account names the field`(
    field: String, json: String?, reason: FCMServiceAccountError.Reason
  ) throws {
    let error = try #require(throws: FCMServiceAccountError.self) {
      _ = try FCMServiceAccount(json: FCMTestAccount.json(replacing: field, with: json), path: "sa.json")
    }
    #expect(error == FCMServiceAccountError(reason, path: "sa.json"))
    #expect(error.description.contains("sa.json"))
    #expect(error.description.contains(field))
    #expect(!error.description.contains("secret"))
    #expect(!error.description.contains("PRIVATE KEY-----\\n"))
  }

  @Test func `an EC key is refused as the key of a service account`() throws {
    let pem = String(decoding: try SigningKey.generate(for: .es256).privateKeyPEM(), as: UTF8.self)
    let error = try #require(throws: FCMServiceAccountError.self) {
      let json = FCMTestAccount.json(replacing: "private_key", with: "\"\(pem.replacing("\n", with: "\\n"))\"")
      _ = try FCMServiceAccount(json: json, path: "sa.json")
    }
    #expect(error.reason == .key(SigningKeyError(.notRSA(found: "EC"), source: "sa.json (private_key)")))
  }

  @Test(arguments: [
    (
      #"{"project_info": {}, "client": []}"#,
      "is google-services.json, which belongs into the Android app: expected the JSON key"
    ),
    (#"{"web": {"client_id": "x"}}"#, "is an OAuth client: expected the JSON key"),
    (#"{"installed": {}}"#, "is an OAuth client: expected the JSON key"),
    ("-----BEGIN PRIVATE KEY-----", "is a key in PEM form: expected the JSON key"),
    ("<plist>", "is XML or HTML: expected the JSON key"),
    (
      "AAAAsecret01:APA91bsecret\n",
      "is a server key of the legacy FCM API, which Google has turned off: expected the JSON key"
    ),
    (#""AAAAsecret01:APA91bsecret""#, "is a server key of the legacy FCM API, which Google has turned off"),
    ("AIzasecret", "is an API key, which sends no messages: expected the JSON key"),
    ("ya29.secret", "is an access token, which expires within an hour: expected the JSON key"),
    (" ewogICJ0eXBlIjog", "is base64 (base64 -d decodes it): expected the JSON key"),
    ("eyJ0eXBlIjog", "is base64 (base64 -d decodes it): expected the JSON key"),
    (#"{"type": "authorized_user"}"#, "field type is not \"service_account\": expected the JSON key"),
  ])
  func `another file than a service account is named`(text: String, says: String) {
    let error = #expect(throws: FCMServiceAccountError.self) {
      _ = try FCMServiceAccount(json: Array(text.utf8), path: "x")
    }
    #expect(error?.description.hasPrefix("service account file x: " + says) == true, "\(error?.description ?? "")")
    #expect(error?.description.contains("secret") == false)
  }

  @Test func `a file that is no JSON object is refused`() {
    #expect(throws: FCMServiceAccountError(.notAnObject, path: "x")) {
      _ = try FCMServiceAccount(json: Array("[]".utf8), path: "x")
    }
    let error = #expect(throws: FCMServiceAccountError.self) {
      _ = try FCMServiceAccount(json: Array(#"{"a":"#.utf8), path: "x")
    }
    #expect(error?.description == "service account file x: not JSON: the text ends too early at byte 5")
    #expect(throws: FCMServiceAccountError(.file(.missing), path: "/nonexistent/sa.json")) {
      _ = try FCMServiceAccount.load(file: "/nonexistent/sa.json")
    }
  }
}

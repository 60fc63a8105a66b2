// Tests of the JWT for Apple, verified by PyJWT.

import Runtime
import Testing

@testable import Providers

@Suite(.timeLimit(.minutes(10))) struct APNsTokenVerificationTests {
  @Test func `an independent library verifies the provider token`() throws {
    let key = try SigningKey.generate(for: .es256)
    let credentials = APNsCredentials(teamID: "TEAM567890", keyID: "KEY4567890", key: key)
    var verifier = IndependentJWTVerifier()
    for issuedAt in 1_700_000_000..<1_700_000_020 as Range<Int64> {
      try verifier.add(
        credentials.mint(issuedAtSeconds: issuedAt), key: key, header: #"{"alg":"ES256","kid":"KEY4567890"}"#,
        claims: #"{"iss":"TEAM567890","iat":\#(issuedAt)}"#)
    }
    #expect(try verifier.verify() == "")
  }

  @Test func `the verifier refuses a token of another key`() throws {
    let credentials = try APNsCredentials(teamID: "T", keyID: "K", key: SigningKey.generate(for: .es256))
    var verifier = IndependentJWTVerifier()
    try verifier.add(
      credentials.mint(issuedAtSeconds: 1), key: SigningKey.generate(for: .es256),
      header: #"{"alg":"ES256","kid":"K"}"#,
      claims: #"{"iss":"T","iat":1}"#)
    let faults = try verifier.verify()
    #expect(faults.contains("InvalidSignatureError"), "\(faults)")
  }
}

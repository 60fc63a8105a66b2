// Tests of tokens: RFC 7515's examples, verification of ours by an independent library, and hostile input.

import Foundation
import Runtime
import TestProcess
import TestSeed
import Testing

@Suite(.timeLimit(.minutes(10))) struct JSONWebTokenTests {
  /// RFC 7515 A.2 and A.3: the public halves of the keys and the tokens signed with them.
  static let rfcRSAKey = """
    -----BEGIN PUBLIC KEY-----
    MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAofgWCuLjybRlzo0tZWJj
    NiuSfb4p4fAkd/wWJcyQoTbji9k0l8W26mPddxHmfHQp+Vaw+4qPCJrcS2mJPMEz
    P1Pt0Bm4d4QlL+yRT+SFd2lZS+pCgNMsD1W/YpRPEwOWvG6b32690r2jZ47soMZo
    9wGzjb/7OMg0LOL+bSf63kpaSHSXndS5z5rexMdbBYUsLA9e+KXBdQOS+UTo7WTB
    EMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6/I5IhlJH7aGhyxX
    FvUK+DWNmoudF8NAco9/h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXp
    oQIDAQAB
    -----END PUBLIC KEY-----
    """
  static let rfcECKey = """
    -----BEGIN PUBLIC KEY-----
    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV7
    6e8Tus9uPHvRVEXH8UTNG72bfocs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==
    -----END PUBLIC KEY-----
    """
  static let rfcClaims =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
  static let rfcRS256 =
    "eyJhbGciOiJSUzI1NiJ9.\(rfcClaims).cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5Y"
    + "Kt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0G"
    + "arZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXL"
    + "IhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
  static let rfcES256 =
    "eyJhbGciOiJFUzI1NiJ9.\(rfcClaims).DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"

  @Test(arguments: [SignatureAlgorithm.rs256, .es256])
  func `the examples of RFC 7515 are verified`(algorithm: SignatureAlgorithm) throws {
    let (compact, pem) = algorithm == .rs256 ? (Self.rfcRS256, Self.rfcRSAKey) : (Self.rfcES256, Self.rfcECKey)
    let key = try VerifyingKey(pem: Array(pem.utf8), for: algorithm, source: "RFC 7515")
    let token = try #require(JSONWebToken(compact: Array(compact.utf8)))
    #expect(token.isSigned(by: key))
    #expect(token.header == Array(#"{"alg":"\#(algorithm.rawValue)"}"#.utf8))
    #expect(token.claims.starts(with: Array(#"{"iss":"joe","#.utf8)))
  }

  @Test func `an independent library verifies our tokens`() throws {
    var lines = ""
    for algorithm in [SignatureAlgorithm.es256, .rs256] {
      let key = try SigningKey.generate(for: algorithm)
      for number in 0..<20 {
        let header = #"{"alg":"\#(algorithm.rawValue)","kid":"KEY\#(number)"}"#
        let claims = #"{"iss":"TEAM567890","iat":\#(1_700_000_000 + number),"note":"ünï \#(number)"}"#
        let token = try JSONWebToken.sign(header: Array(header.utf8), claims: Array(claims.utf8), with: key)
        let pem = String(decoding: try key.publicKeyPEM(), as: UTF8.self).replacing("\n", with: "\\n")
        lines += #"{"token":"\#(String(decoding: token, as: UTF8.self))","publicKey":"\#(pem)","#
        lines += #""algorithm":"\#(algorithm.rawValue)","header":\#(header),"claims":\#(claims)}"# + "\n"
      }
    }
    let verdict = try Self.verify(lines)
    #expect(verdict.status == 0, "\(verdict.output)")

    // Checks the verifier itself: with one changed byte it refuses the token.
    let broken = lines.replacing(#""token":"ey"#, with: #""token":"eX"#, maxReplacements: 1)
    #expect(try Self.verify(broken).status == 1)
  }

  @Test func `a signed token is parsed into its parts`() throws {
    let key = try SigningKey.generate(for: .es256)
    let header = Array(#"{"alg":"ES256","kid":"K"}"#.utf8)
    let claims = Array(#"{"iat":1}"#.utf8)
    let token = try #require(JSONWebToken(compact: try JSONWebToken.sign(header: header, claims: claims, with: key)))
    #expect(token.header == header)
    #expect(token.claims == claims)
    #expect(token.isSigned(by: try key.verifyingKey()))
    #expect(try !token.isSigned(by: SigningKey.generate(for: .es256).verifyingKey()))
  }

  @Test(arguments: [
    #"{"alg":"none"}"#, #"{"alg":"RS256"}"#, #"{"alg":"es256"}"#, #"{}"#, #"[]"#, #"{"alg":1}"#, "x",
    #"{"alg":"ES256","crit":["exp"]}"#, #"{"alg":"ES256","alg":"none"}"#,
  ])
  func `a header cannot choose another algorithm`(header: String) throws {
    let key = try SigningKey.generate(for: .es256)
    let compact = try JSONWebToken.sign(header: Array(header.utf8), claims: Array("{}".utf8), with: key)
    let token = try #require(JSONWebToken(compact: compact))
    #expect(try !token.isSigned(by: key.verifyingKey()))
  }

  @Test(arguments: [
    "", ".", "..", "...", "a", "a.b", "e30.e30", "e30.e30.", ".e30.e30", "e30..e30", "e30.e30.e30.e30", "e30.e30.e3=",
    "e30.e30.e30 ", "{}.{}.{}", "\0\0.\0\0.\0\0", "é.é.é",
  ])
  func `a text that is no compact token is refused`(text: String) {
    #expect(JSONWebToken(compact: Array(text.utf8)) == nil)
  }

  @Test func `a text beyond the limit is not parsed`() {
    let part = [UInt8](repeating: UInt8(ascii: "A"), count: JSONWebToken.lengthMax)
    #expect(JSONWebToken(compact: part + Array(".AAAA.AAAA".utf8)) == nil)
  }

  @Test func `random bytes never crash`() throws {
    let key = try SigningKey.generate(for: .es256).verifyingKey()
    var random = TestSeed.generator(2)
    let valid = Array(Self.rfcES256.utf8)
    for _ in 0..<2_000 {
      var bytes = valid
      for _ in 0..<Int.random(in: 1...4, using: &random) {
        bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
      }
      bytes.removeLast(Int.random(in: 0..<bytes.count, using: &random))
      #expect(JSONWebToken(compact: bytes)?.isSigned(by: key) != true, "\(TestSeed.comment)")
    }
  }

  /// Runs Tests/jwt/verify over the lines.
  static func verify(_ lines: String) throws -> (status: Int32, output: String) {
    let tests = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    let process = Process()
    process.executableURL = tests.appending(path: "jwt/verify")
    let (input, output) = (Pipe(), Pipe())
    process.standardInput = input
    process.standardOutput = output
    try process.start()
    input.fileHandleForWriting.write(Data(lines.utf8))
    try input.fileHandleForWriting.close()
    let text = try output.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    return (process.terminationStatus, String(decoding: text, as: UTF8.self))
  }
}

// Tests of JWK Sets: which keys are used, and which are skipped. Tokens signed by them are tested with the identities.

import Runtime
import Testing

@Suite struct JSONWebKeySetTests {
  // The keys of RFC 7515, A.2 and A.3.
  private static let x = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"
  private static let y = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"
  private static let ec = #"{"kty": "EC", "crv": "P-256", "kid": "a", "x": "\#(x)", "y": "\#(y)"}"#
  private static let modulus =
    "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMs"
    + "D1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdV"
    + "MTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"
  private static let rsa = #"{"kty": "RSA", "kid": "b", "alg": "RS256", "use": "sig", "e": "AQAB", "n": "\#(modulus)"}"#

  private func count(_ keys: String...) -> Int? {
    try? JSONWebKeySet(Array(#"{"keys": [\#(keys.joined(separator: ","))]}"#.utf8)).count
  }

  @Test func `keys of both kinds are used`() {
    #expect(count(Self.ec) == 1 && count(Self.rsa) == 1 && count(Self.ec, Self.rsa) == 2)
  }

  @Test func `keys that sign none of our tokens are skipped`() {
    let odd = [
      Self.ec.replacing(#""kid": "a", "#, with: ""), Self.ec.replacing("P-256", with: "P-384"),
      Self.ec.replacing(Self.y, with: Self.x), Self.ec.replacing(Self.x, with: "AAAA"),
      Self.ec.replacing(#""kty""#, with: #""use": "enc", "kty""#),
      Self.rsa.replacing("RS256", with: "PS256"),
      Self.rsa.replacing(Self.modulus, with: String(Self.modulus.prefix(171))),
      #"{"kty": "oct", "kid": "c", "k": "c2VjcmV0"}"#, "7", "null",
    ]
    for key in odd {
      #expect(count(key) == nil, "\(key)")
      #expect(count(key, Self.ec) == 1, "\(key)")
    }
  }

  @Test(arguments: ["", "x", "[]", "{}", #"{"keys": {}}"#, #"{"keys": []}"#])
  func `a text that is no set says why`(text: String) {
    #expect(throws: JSONWebKeySet.Fault.self) { try JSONWebKeySet(Array(text.utf8)) }
  }
}

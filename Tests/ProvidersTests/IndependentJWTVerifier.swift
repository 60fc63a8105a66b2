// Runs Tests/jwt/verify, which verifies our tokens with PyJWT.

import Foundation
import Runtime
import TestProcess

/// Tokens to be verified by a library that shares no code with ours.
struct IndependentJWTVerifier {
  private var lines = ""

  /// - Parameters:
  ///   - header: the expected JSON of the token's header.
  ///   - claims: the expected JSON of its claims.
  mutating func add(_ token: [UInt8], key: SigningKey, header: String, claims: String) throws {
    let pem = String(decoding: try key.publicKeyPEM(), as: UTF8.self).replacing("\n", with: "\\n")
    lines += #"{"token":"\#(String(decoding: token, as: UTF8.self))","publicKey":"\#(pem)","#
    lines += #""algorithm":"\#(key.algorithm.rawValue)","header":\#(header),"claims":\#(claims)}"# + "\n"
  }

  /// The faults of the tokens; empty if there are none.
  func verify() throws -> String {
    let tests = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    let process = Process()
    process.executableURL = tests.appending(path: "jwt/verify")
    let (input, output) = (Pipe(), Pipe())
    process.standardInput = input
    process.standardOutput = output
    try process.start()
    input.fileHandleForWriting.write(Data(lines.utf8))
    try input.fileHandleForWriting.close()
    let text = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
    process.waitUntilExit()
    return process.terminationStatus == 0 ? "" : "exit status \(process.terminationStatus): \(text)"
  }
}

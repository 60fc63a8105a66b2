// Runs Tests/jwt/verify: PyJWT's verdict on our tokens.

import Foundation
import Runtime

/// Tokens to be verified by a library that shares nothing with ours.
struct IndependentJWTVerifier {
  private var lines = ""

  /// - Parameters:
  ///   - header: the JSON the token's header must be.
  ///   - claims: the JSON its claims must be.
  mutating func add(_ token: [UInt8], key: SigningKey, header: String, claims: String) throws {
    let pem = String(decoding: try key.publicKeyPEM(), as: UTF8.self).replacing("\n", with: "\\n")
    lines += #"{"token":"\#(String(decoding: token, as: UTF8.self))","publicKey":"\#(pem)","#
    lines += #""algorithm":"\#(key.algorithm.rawValue)","header":\#(header),"claims":\#(claims)}"# + "\n"
  }

  /// What is wrong with them; empty when nothing is.
  func verify() throws -> String {
    let tests = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    let process = Process()
    process.executableURL = tests.appending(path: "jwt/verify")
    let (input, output) = (Pipe(), Pipe())
    process.standardInput = input
    process.standardOutput = output
    try process.run()
    input.fileHandleForWriting.write(Data(lines.utf8))
    try input.fileHandleForWriting.close()
    let text = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
    process.waitUntilExit()
    return process.terminationStatus == 0 ? "" : "exit status \(process.terminationStatus): \(text)"
  }
}

// A private CA and a server certificate for localhost and 127.0.0.1, made once for all tests of a process.

import Foundation
import Runtime
import TestProcess

public struct TestCertificates: Sendable {
  public let caFile: String
  public let certificateFile: String
  public let keyFile: String

  struct NotMade: Error {}

  /// The certificates that all tests share, and those of an unknown CA.
  public static let shared = try! TestCertificates("shared")
  public static let stranger = try! TestCertificates("stranger")

  private init(_ name: String) throws {
    let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..")
    let folder = FileManager.default.temporaryDirectory.appending(path: "push-gateway-http2-\(getpid())-\(name)").path()
    let script = Process()
    script.executableURL = URL(filePath: "/bin/sh")
    script.arguments = [root.appending(path: "scripts/certificates.sh").path(), folder]
    try script.start()
    script.waitUntilExit()
    guard script.terminationStatus == 0 else { throw NotMade() }
    caFile = folder + "/ca.pem"
    certificateFile = folder + "/server.pem"
    keyFile = folder + "/server.key"
  }

  /// A client's TLS settings with this CA.
  public func client() throws -> TLSContext { try TLSContext.client(caFile: caFile) }
}

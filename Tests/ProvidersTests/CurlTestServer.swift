// Starts Tests/servers/http_server.py, a server that shares no code with ours.

import Foundation
import Runtime
import TestProcess

@testable import Providers

extension CurlConfiguration {
  /// For a server that a busy machine makes slow.
  mutating func waitLong() {
    connectTimeout = .seconds(60)
    totalTimeout = .seconds(120)
    idleConnectionTimeMax = .seconds(600)
    keepalive.unacknowledgedMax = .seconds(60)
  }
}

/// A server process; it ends when this object is released or the test process ends.
// @unchecked: nothing changes after `init`.
final class CurlTestServer: @unchecked Sendable {
  /// A server with TLS that several tests share.
  static let shared = Result { try CurlTestServer() }

  let port: Int
  /// The CA that signed its certificate.
  let caFile: String
  private let process = Process()

  struct NotStarted: Error {}

  init(isTLS: Bool = true) throws {
    let tests = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    let certificates = try Self.certificates.get()
    caFile = certificates + "/ca.pem"
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments =
      ["python3", tests.appending(path: "servers/http_server.py").path()]
      + (isTLS ? [certificates + "/server.pem", certificates + "/server.key"] : [])
    let output = Pipe()
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = output
    try process.start()
    let line = String(decoding: output.fileHandleForReading.availableData, as: UTF8.self)
    guard let port = Int(line.trimmingCharacters(in: .whitespacesAndNewlines)) else { throw NotStarted() }
    self.port = port
  }

  deinit {
    process.terminate()
    process.waitUntilExit()
  }

  /// A CA and a server certificate, made once for all tests of this process.
  private static let certificates: Result<String, any Error> = Result {
    let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    let folder = FileManager.default.temporaryDirectory.appending(path: "push-gateway-certificates-\(getpid())").path()
    let script = Process()
    script.executableURL = URL(filePath: "/bin/sh")
    script.arguments = [root.appending(path: "../scripts/certificates.sh").path(), folder]
    try script.start()
    script.waitUntilExit()
    guard script.terminationStatus == 0 else { throw NotStarted() }
    return folder
  }
}

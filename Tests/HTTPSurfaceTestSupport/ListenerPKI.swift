// Certificates for a listener and its clients, made by openssl, in a directory that is removed with the object.

import Foundation
import HTTP2TestSupport
import TestProcess

@testable import Settings

/// Two authorities, a pair for the server from each, and certificates of clients.
package final class ListenerPKI {
  package struct Failed: Error { package let output: String }

  /// Authorities and server certificates that all tests share. Nothing is configured to trust `others`.
  package let ours = TestCertificates.shared
  package let others = TestCertificates.stranger
  package let folder: String

  /// The configured files, which at first contain our certificate and key.
  package var certificateFile: String { folder + "/server.pem" }
  package var keyFile: String { folder + "/server.key" }

  package init() throws {
    folder = FileManager.default.temporaryDirectory.appending(path: "listener-\(UUID().uuidString)").path()
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try install(certificateOf: ours)
    try install(keyOf: ours)
  }

  deinit { try? FileManager.default.removeItem(atPath: folder) }

  package func install(certificateOf pair: TestCertificates) throws {
    try SecretFixture.write(Data(contentsOf: URL(filePath: pair.certificateFile)), to: certificateFile, mode: 0o644)
  }

  package func install(keyOf pair: TestCertificates, mode: Int = 0o600) throws {
    try SecretFixture.write(Data(contentsOf: URL(filePath: pair.keyFile)), to: keyFile, mode: mode)
  }

  /// The settings with these files.
  package func settings(clients: GatewayConfiguration.ListenerTLS.ClientCertificates? = nil)
    -> GatewayConfiguration.ListenerTLS
  {
    GatewayConfiguration.ListenerTLS(
      certificateFile: certificateFile, keyFile: keyFile, clientCAFile: clients.map { _ in ours.caFile },
      clientCertificates: clients ?? .required)
  }

  /// A client's certificate and key, as curl's options.
  ///
  /// - Parameters:
  ///   - authority: the authority that signs the certificate.
  ///   - purpose: the value of extendedKeyUsage.
  package func client(of authority: TestCertificates, purpose: String = "clientAuth") throws -> [String] {
    let name = "\(folder)/\(UUID().uuidString)"
    try Self.run(
      """
      openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout \(name).key -subj /CN=backend -out \(name).csr
      echo extendedKeyUsage=\(purpose) > \(name).ext
      openssl x509 -req -in \(name).csr -CA \(authority.caFile) -CAkey \(authority.caFile.dropLast(3))key -set_serial 7 \
        -days 30 -extfile \(name).ext -out \(name).pem
      """)
    return ["--cert", "\(name).pem", "--key", "\(name).key"]
  }

  /// Runs a script. Returns its standard output and standard error together.
  @discardableResult
  package static func run(_ script: String, mayFail: Bool = false) throws -> String {
    let process = Process()
    process.executableURL = URL(filePath: "/bin/sh")
    process.arguments = ["-c", mayFail ? script : "set -e\n" + script]
    let output = Pipe()
    process.standardOutput = output
    process.standardError = output
    try process.start()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    guard mayFail || process.terminationStatus == 0 else { throw Failed(output: text) }
    return text
  }

  /// Runs a script on a thread of its own, because it waits.
  package static func runApart(_ script: String) async throws -> String {
    try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async { continuation.resume(with: Result { try run(script, mayFail: true) }) }
    }
  }
}

// nghttpd (Debian package nghttp2-server): an HTTP/2 server that shares no code with ours.

import Foundation
import Runtime

/// A running nghttpd; stopped when this object is released.
// @unchecked: nothing changes after `init`.
public final class NghttpdServer: @unchecked Sendable {
  public let port: UInt16
  /// Holds `index.html`.
  public let folder: String
  private let process: ServerProcess

  /// - Parameter options: nghttpd's own, such as `-m 2`.
  public init(_ options: String...) throws {
    let certificates = TestCertificates.shared
    port = try ServerProcess.freePort()
    folder = FileManager.default.temporaryDirectory.appending(path: "push-gateway-nghttpd-\(getpid())-\(port)").path()
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try "ok".write(toFile: folder + "/index.html", atomically: true, encoding: .utf8)
    process = try ServerProcess(
      ["nghttpd", "-a", "127.0.0.1", "-d", folder] + options
        + [String(port), certificates.keyFile, certificates.certificateFile], port: port)
  }

  deinit { try? FileManager.default.removeItem(atPath: folder) }
}

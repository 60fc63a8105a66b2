// nghttpd (Debian package nghttp2-server): an HTTP/2 server that shares no code of ours.

import Foundation
import Runtime

/// A running nghttpd; stopped when this object goes.
// @unchecked: nothing changes after `init`.
public final class NghttpdServer: @unchecked Sendable {
  public let port: UInt16
  /// Holds `index.html`.
  public let folder: String
  private let process = Process()
  private let input = Pipe()
  private let output = Pipe()

  struct NotStarted: Error {}

  /// - Parameter options: nghttpd's own, such as `-m 2`.
  public init(_ options: String...) throws {
    let certificates = TestCertificates.shared
    port = try Self.freePort()
    folder = FileManager.default.temporaryDirectory.appending(path: "push-gateway-nghttpd-\(getpid())-\(port)").path()
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try "ok".write(toFile: folder + "/index.html", atomically: true, encoding: .utf8)
    process.executableURL = URL(filePath: "/bin/sh")
    // The shell stops nghttpd when its standard input ends, which it does however this process ends. Not by SIGTERM: a
    // child inherits the signal mask of a dispatch thread, in which that is blocked. -v for the line that says it
    // listens.
    process.arguments =
      ["-c", "\"$@\" & read -r _; kill -9 $!", "sh", "nghttpd", "-v", "-a", "127.0.0.1", "-d", folder] + options
      + [String(port), certificates.keyFile, certificates.certificateFile]
    process.environment = ["PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/opt/homebrew/bin"]
    process.standardInput = input
    process.standardOutput = output
    process.standardError = FileHandle.nullDevice
    try process.run()
    var text = Data()
    while !text.contains("listen".utf8) {
      let more = output.fileHandleForReading.availableData
      guard !more.isEmpty else { throw NotStarted() }
      text += more
    }
    output.fileHandleForReading.readabilityHandler = { _ = $0.availableData }  // a full pipe would stop the server
  }

  deinit {
    try? input.fileHandleForWriting.close()
    process.waitUntilExit()
    output.fileHandleForReading.readabilityHandler = nil
    try? FileManager.default.removeItem(atPath: folder)
  }

  /// A port nobody listens on. nghttpd cannot choose one itself.
  public static func freePort() throws -> UInt16 {
    let loop = EventLoop(name: "free-port")
    defer { loop.stop() }
    return try TCPListener(on: SocketAddress(numericHost: "127.0.0.1", port: 0)!, loop: loop).port
  }
}

// tinyproxy (Debian package tinyproxy-bin): a proxy that shares no code of ours.

import Foundation
import Runtime

/// A running tinyproxy on 127.0.0.1; stopped when this object goes.
// @unchecked: nothing changes after `init`.
public final class TinyProxy: @unchecked Sendable {
  public let port: UInt16
  private let folder: String
  private let process = Process()
  private let input = Pipe()
  private let output = Pipe()

  struct NotStarted: Error {}

  /// - Parameter login: `user password`, which it asks for; nil: it lets everybody in.
  public init(login: String? = nil) throws {
    port = try NghttpdServer.freePort()
    folder = FileManager.default.temporaryDirectory.appending(path: "push-gateway-tinyproxy-\(getpid())-\(port)").path()
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    let configuration = """
      Port \(port)
      Listen 127.0.0.1
      Allow 127.0.0.1
      Timeout 600
      MaxClients 200
      LogFile "\(folder)/log"
      LogLevel Connect
      \(login.map { "BasicAuth \($0)" } ?? "")

      """
    try configuration.write(toFile: folder + "/tinyproxy.conf", atomically: true, encoding: .utf8)
    process.executableURL = URL(filePath: "/bin/sh")
    // As for `NghttpdServer`: the shell ends it when this process does.
    process.arguments = [
      "-c", "\"$@\" & read -r _; kill -9 $!", "sh", "tinyproxy", "-d", "-c", folder + "/tinyproxy.conf",
    ]
    process.environment = ["PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/opt/homebrew/bin"]
    process.standardInput = input
    process.standardOutput = output
    process.standardError = output
    try process.run()
    output.fileHandleForReading.readabilityHandler = { _ = $0.availableData }  // a full pipe would stop it
    let limit = Date(timeIntervalSinceNow: 30)
    while !Self.listens(port) {
      guard process.isRunning, Date() < limit else { throw NotStarted() }
      usleep(5_000)
    }
  }

  deinit {
    try? input.fileHandleForWriting.close()
    process.waitUntilExit()
    output.fileHandleForReading.readabilityHandler = nil
    try? FileManager.default.removeItem(atPath: folder)
  }

  /// The targets of all tunnels it was asked for, `host:port`, refused ones included.
  public var targets: [String] {
    let log = (try? String(contentsOfFile: folder + "/log", encoding: .utf8)) ?? ""
    return log.matches(of: /Request \(file descriptor \d+\): CONNECT (\S+) HTTP/).map { String($0.1) }
  }

  private static func listens(_ port: UInt16) -> Bool {
    guard let socket = try? TCPSocket.connect(to: SocketAddress(numericHost: "127.0.0.1", port: port)!) else {
      return false
    }
    var entry = pollfd(fd: socket.rawValue, events: Int16(POLLOUT), revents: 0)
    return poll(&entry, 1, 1000) == 1 && TCPSocket.connectionError(socket) == nil
  }
}

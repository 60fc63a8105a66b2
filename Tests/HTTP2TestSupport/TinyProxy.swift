// tinyproxy (Debian package tinyproxy-bin): a proxy that shares no code with ours.

import Foundation
import Runtime

/// A running tinyproxy on 127.0.0.1; stopped when this object is released.
// @unchecked: nothing changes after `init`.
public final class TinyProxy: @unchecked Sendable {
  public let port: UInt16
  private let folder: String
  private let process: ServerProcess

  /// - Parameter login: the required `user password`; nil if no login is required.
  public init(login: String? = nil) throws {
    port = try ServerProcess.freePort()
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
    process = try ServerProcess(["tinyproxy", "-d", "-c", folder + "/tinyproxy.conf"], port: port)
  }

  deinit { try? FileManager.default.removeItem(atPath: folder) }

  /// The targets of all requested tunnels, `host:port`, including refused ones.
  public var targets: [String] {
    let log = (try? String(contentsOfFile: folder + "/log", encoding: .utf8)) ?? ""
    return log.matches(of: /Request \(file descriptor \d+\): CONNECT (\S+) HTTP/).map { String($0.1) }
  }
}

// pgbouncer (Debian package pgbouncer): the pooler between a client and Postgres.

import Foundation

/// A running pgbouncer in transaction mode on 127.0.0.1, before one database; stopped when this object is released.
// @unchecked: nothing changes after `init`.
public final class PgBouncer: @unchecked Sendable {
  struct NoAddress: Error {}

  /// The database's URL through the pooler.
  public let url: String
  private let folder: String
  private let process: ServerProcess

  /// - Parameter database: the URL of a database whose server asks for no password.
  public init(before database: String) throws {
    guard var components = URLComponents(string: database), let host = components.host, let user = components.user
    else { throw NoAddress() }
    let port = try ServerProcess.freePort()
    folder = FileManager.default.temporaryDirectory.appending(path: "push-gateway-pgbouncer-\(getpid())-\(port)").path()
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    // It refuses to run as root, and becomes this user.
    let login = getuid() == 0 ? "user = nobody" : ""
    let configuration = """
      [databases]
      * = host=\(host) port=\(components.port ?? 5432) user=\(user)
      [pgbouncer]
      listen_addr = 127.0.0.1
      listen_port = \(port)
      unix_socket_dir =
      auth_type = any
      pool_mode = transaction
      \(login)

      """
    try configuration.write(toFile: folder + "/pgbouncer.ini", atomically: true, encoding: .utf8)
    components.host = "127.0.0.1"
    components.port = Int(port)
    url = components.string ?? ""
    process = try ServerProcess(["pgbouncer", folder + "/pgbouncer.ini"], port: port)
  }

  deinit { try? FileManager.default.removeItem(atPath: folder) }
}

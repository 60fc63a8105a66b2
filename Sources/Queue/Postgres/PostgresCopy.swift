// COPY … FROM STDIN: the fastest way to load very many rows. It uses a connection of its own in libpq's blocking mode, because
// nothing else could use the connection during a COPY.

internal import CLibPQ

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// One bulk load.
public enum PostgresCopy {
  /// Runs a COPY to its end, in a transaction of its own. Blocks the calling thread.
  ///
  /// - Parameters:
  ///   - statement: `copy … from stdin`, in text format.
  ///   - url: `postgres://…` or a libpq connection string.
  ///   - applicationName: what `pg_stat_activity` shows.
  ///   - next: returns the next whole lines of the text format, nil at the end.
  /// - Throws: `connectionFailed`, or the server's error. Then no row is loaded.
  public static func load(
    _ statement: String, url: String, applicationName: String, next: () -> [UInt8]?
  ) throws(PostgresError) {
    let connection = unsafe connect(url, applicationName)
    defer { unsafe PQfinish(connection) }
    guard unsafe PQstatus(connection) == CONNECTION_OK else {
      throw unsafe PostgresError.connectionFailure(.connectionFailed, connection)
    }
    try unsafe expect(PGRES_COMMAND_OK, PQexec(connection, PostgresPipeline.pinSearchPath.sql), connection)
    try unsafe expect(PGRES_COPY_IN, PQexec(connection, statement), connection)
    while let lines = next() {
      let isSent = unsafe lines.withUnsafeBytes { bytes in
        unsafe PQputCopyData(connection, bytes.bindMemory(to: CChar.self).baseAddress, Int32(bytes.count)) == 1
      }
      // The server has ended the COPY, or the connection broke; what follows tells which.
      if !isSent { break }
    }
    _ = unsafe PQputCopyEnd(connection, nil)
    try unsafe expect(PGRES_COMMAND_OK, PQgetResult(connection), connection)
  }

  private static func connect(_ url: String, _ applicationName: String) -> OpaquePointer {
    let connection = unsafe ["fallback_application_name", "client_encoding", "dbname"].withCStrings { keywords in
      unsafe [applicationName, "UTF8", url].withCStrings { values in unsafe PQconnectdbParams(keywords, values, 1) }
    }
    guard let connection = unsafe connection else { preconditionFailure("out of memory") }
    // libpq would write the server's notices to standard error, and they may quote data.
    unsafe PQsetNoticeProcessor(connection, { _, _ in }, nil)
    return unsafe connection
  }

  private static func expect(
    _ status: ExecStatusType, _ result: OpaquePointer?, _ connection: OpaquePointer
  ) throws(PostgresError) {
    guard let result = unsafe result else {
      throw unsafe PostgresError.connectionFailure(.connectionLost, connection)
    }
    defer { unsafe PQclear(result) }
    guard unsafe PQresultStatus(result) == status else { throw unsafe PostgresError.from(result) }
  }
}

extension [String] {
  /// A list of C strings with a null at its end.
  fileprivate func withCStrings<Result>(_ body: (UnsafePointer<UnsafePointer<CChar>?>) -> Result) -> Result {
    let copies = unsafe map { unsafe strdup($0) }
    defer { unsafe copies.forEach { unsafe free($0) } }
    return unsafe body(copies.map { unsafe UnsafePointer($0) } + [nil])
  }
}

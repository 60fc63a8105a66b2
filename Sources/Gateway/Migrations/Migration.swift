// The parts of the schema, from migrations/ of the repository, which are part of the binary.

internal import Runtime
internal import Settings

/// A file `migrations/NNNN_name.sql`: a change of the tables. It is applied once and never edited.
struct Migration: Equatable, Sendable {
  var version: Int32
  var name: String
  var sql: String

  /// SHA-256 of the file's bytes, in hex.
  var checksum: String { String(decoding: SHA256.hexDigest(Array(sql.utf8)), as: UTF8.self) }

  /// `0001_schema`
  var title: String {
    let digits = String(version)
    return String(repeating: "0", count: max(0, 4 - digits.count)) + digits + "_" + name
  }
}

/// A file `migrations/functions/topic.sql`: functions, views and triggers, which are replaced whenever the file
/// changes.
struct FunctionsFile: Equatable, Sendable {
  var topic: String
  var sql: String

  /// SHA-256 of the file's bytes, in hex.
  var checksum: String { String(decoding: SHA256.hexDigest(Array(sql.utf8)), as: UTF8.self) }

  /// `functions/claim`
  var title: String { "functions/" + topic }
}

extension Migration {
  /// The files of migrations/, in the order of their versions. The version ends at the first `_`.
  static let embedded: [Migration] = EmbeddedFiles.all.compactMap { file in
    guard !file.path.contains("/"), file.path.hasSuffix(".sql"), let end = file.path.firstIndex(of: "_") else {
      return nil
    }
    guard let version = Int32(file.path[..<end]) else {
      preconditionFailure("migrations/\(file.path): the name must begin with four digits and _")
    }
    return Migration(
      version: version, name: String(file.path[end...].dropFirst().dropLast(".sql".count)), sql: file.text)
  }
}

extension FunctionsFile {
  /// The files of migrations/functions/, in the order of their application. roles.sql is the last, because it grants
  /// rights on what the others create.
  static let embedded: [FunctionsFile] = {
    let files = EmbeddedFiles.all.compactMap { file -> FunctionsFile? in
      let folder = "functions/"
      guard file.path.hasPrefix(folder), file.path.hasSuffix(".sql") else { return nil }
      return FunctionsFile(topic: String(file.path.dropFirst(folder.count).dropLast(".sql".count)), sql: file.text)
    }
    return files.filter { $0.topic != "roles" } + files.filter { $0.topic == "roles" }
  }()
}

/// Why the schema cannot be updated.
enum MigrationError: Error, Equatable, CustomStringConvertible, Sendable {
  /// The database was made by migrations that the current first one has replaced.
  case beforeBaseline
  /// The schema exists, but there is no record of its migrations.
  case unrecorded
  /// The database has another encoding than UTF8.
  case encoding(String)
  /// The file differs from the one that was applied.
  case changed(String)
  /// The database has a migration that this version does not know.
  case unknown(String)
  /// A release has migrated the schema that is more than one minor version newer.
  case tooNew(release: String)
  /// A migration was not applied, but a later one was.
  case skipped(String)
  /// The server refused a file, and all of it was rolled back.
  case failed(String, reason: String)
  /// The tables that the file changes were locked at each try. Nothing of it was applied.
  case locked(String)
  /// Another session held the lock that lets only one replica at a time migrate.
  case occupied(holder: String)

  var description: String {
    switch self {
    case .beforeBaseline:
      "this database was made before the first migration of this version, and cannot be updated, because nothing had been released: create an empty database, run `push-gateway migrate` there, and keep this one until you have what you need of it"
    case .unrecorded:
      "the schema push exists, but was not made by `push-gateway migrate`: psql does not record in push.schema_migration which files it applied, "
        + "so what is missing cannot be determined: create an empty database, run `push-gateway migrate` there, and keep this one until you have what you need of it; "
        + "if push-gateway migrate has made it, restore the rows of push.schema_migration and push.schema_functions from a backup"
    case .encoding(let name):
      "the database has the encoding \(name), and names of callers need UTF8: create another database, with `create database … encoding 'UTF8' template template0`, and give its URL"
    case .changed(let title):
      "migration \(title) was applied to this database with other content: migrations must not be edited; use the push-gateway that applied it, or one whose file is unchanged"
    case .unknown(let title):
      "the database has migration \(title), which push-gateway \(GatewayVersion.current) does not know: a newer version applied it; use that version or a later one"
    case .tooNew(let release):
      "push-gateway \(release) has migrated this schema, and push-gateway \(GatewayVersion.current) serves only its own and that of the next minor release: use push-gateway \(release)"
    case .skipped(let title):
      "migration \(title) was never applied, but a later one was, so push.schema_migration is incomplete: restore it, or begin with an empty database"
    case .locked(let title):
      "migration \(title) was not applied, because another transaction holds a lock on what it changes: find it in pg_stat_activity (the oldest xact_start), wait for it to end or end it, and run `push-gateway migrate` again"
    case .occupied(let holder):
      "nothing was migrated, because only one push-gateway migrate at a time may work, and \(holder) has held the lock for that all the time: if it is another push-gateway migrate, wait for it; otherwise end it with `select pg_terminate_backend(pid)`, as a role in pg_signal_backend, or a superuser; and run `push-gateway migrate` again"
    case .failed(let title, let reason): "migration \(title) failed and was rolled back: \(reason)"
    }
  }
}

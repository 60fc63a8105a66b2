// The schema's parts, as they are in migrations/ and in the binary.

internal import Runtime
internal import Settings

/// A file `migrations/NNNN_name.sql`: a step of the tables, which is applied once and never edited.
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

/// A file `migrations/functions/topic.sql`: functions, views and triggers, which are replaced whenever the file has changed.
struct FunctionsFile: Equatable, Sendable {
  var topic: String
  var sql: String

  /// SHA-256 of the file's bytes, in hex.
  var checksum: String { String(decoding: SHA256.hexDigest(Array(sql.utf8)), as: UTF8.self) }

  /// `functions/claim`
  var title: String { "functions/" + topic }
}

extension Migration {
  /// Those of migrations/, in the order of their versions. The version ends at the first `_`.
  static let embedded: [Migration] = EmbeddedFiles.all.compactMap { file in
    guard !file.path.contains("/"), file.path.hasSuffix(".sql"), let end = file.path.firstIndex(of: "_") else {
      return nil
    }
    guard let version = Int32(file.path[..<end]) else {
      preconditionFailure("migrations/\(file.path): its name must begin with four digits and _")
    }
    return Migration(
      version: version, name: String(file.path[end...].dropFirst().dropLast(".sql".count)), sql: file.text)
  }
}

extension FunctionsFile {
  /// Those of migrations/functions/, in the order they are applied in: roles.sql grants what the others make, and is the last.
  static let embedded: [FunctionsFile] = {
    let files = EmbeddedFiles.all.compactMap { file -> FunctionsFile? in
      let folder = "functions/"
      guard file.path.hasPrefix(folder), file.path.hasSuffix(".sql") else { return nil }
      return FunctionsFile(topic: String(file.path.dropFirst(folder.count).dropLast(".sql".count)), sql: file.text)
    }
    return files.filter { $0.topic != "roles" } + files.filter { $0.topic == "roles" }
  }()
}

/// Why the schema cannot be brought up to date.
enum MigrationError: Error, Equatable, CustomStringConvertible, Sendable {
  /// The database was made by the migrations that the first one of today replaced.
  case beforeBaseline
  /// The database has the schema, and no word of how it came there.
  case unrecorded
  /// The file is not what was applied.
  case changed(String)
  /// The database has a migration this version does not know.
  case unknown(String)
  /// A migration before one that was applied has never been applied.
  case skipped(String)
  /// The server refused a file; nothing of it is left.
  case failed(String, reason: String)
  /// What the file changes was locked each time it was tried; nothing of it is left.
  case locked(String)

  var description: String {
    switch self {
    case .beforeBaseline:
      "this database was made before the schema's baseline: nothing was released yet, so there is no upgrade; drop the schema with `drop schema push cascade` after saving what you need, and run `push-gateway migrate` again"
    case .unrecorded:
      "the schema push is there, but not by `push-gateway migrate`: psql does not write down which files it applied (push.schema_migration), "
        + "so nobody can tell what is missing; save what you need, drop it with `drop schema push cascade`, and run `push-gateway migrate` again"
    case .changed(let title):
      "migration \(title) was applied to this database with another content: migrations are never edited, use the push-gateway it was applied with or one that has it unchanged"
    case .unknown(let title):
      "the database has migration \(title), which push-gateway \(GatewayVersion.current) does not know: it was made by a newer version, use that or a later one"
    case .skipped(let title):
      "migration \(title) was never applied, but one after it was: push.schema_migration does not tell what happened here; restore it, or start from an empty database"
    case .locked(let title):
      "migration \(title) was not applied: another transaction holds a lock on what it changes. Find it in pg_stat_activity (xact_start, the oldest first), let it end or end it, and run `push-gateway migrate` again"
    case .failed(let title, let reason): "migration \(title) failed and was rolled back: \(reason)"
    }
  }
}

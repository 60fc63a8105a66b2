// `push-gateway-lab demo`: one call rings three simulated phones, with the installed programs and the machine's Postgres.

import ArgumentParser
import Console
import Foundation

/// Runs scripts/demo.sh, which the build embeds: `make demo` is the same with programs that were just built.
struct DemoCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "demo",
    abstract: "Ring three simulated phones, with a private Postgres, and print the timeline.",
    discussion: """
      Starts a private Postgres, simulators of the providers and a gateway, all on the loopback interface; enqueues one call; \
      prints its timeline and what the providers accepted; and stops everything. It takes some seconds, and exits with 0 only if \
      all three pushes were delivered.

      Needs push-gateway in the folder of this program, curl, and the programs of Postgres (initdb, pg_ctl): on Debian, the \
      package postgresql. Its own clusters are not touched. As root, Postgres runs as the user postgres.

      Without --directory, everything is in a temporary directory, which stays only if the demo fails.
      """)

  @Option(
    help: ArgumentHelp("Directory for logs, keys and data, which stays. It must be new or empty.", valueName: "dir"))
  var directory: String?

  func run() async throws {
    let gateway = try Self.gateway()
    let folder = try makeFolder()
    for (path, text) in EmbeddedFiles.all {
      let file = folder.appending(path: "scripts/\(path)")
      try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
      try Data(text.utf8).write(to: file)
      try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: file.path)
    }
    try replaceProcess(
      by: ["/bin/sh", folder.appending(path: "scripts/demo.sh").path],
      environment: ["PUSH_GATEWAY": gateway, "PUSH_DEMO_FOLDER": directory == nil ? folder.path : ""])
  }

  /// The program push-gateway beside this one.
  private static func gateway() throws -> String {
    let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
    let path = URL(filePath: own).deletingLastPathComponent().appending(path: "push-gateway").path
    guard FileManager.default.isExecutableFile(atPath: path) else {
      throw CommandFailure(
        "there is no program \(path): install push-gateway, of the same version, beside push-gateway-lab")
    }
    return path
  }

  /// The folder, which other users may enter: Postgres is one of them if this is root.
  private func makeFolder() throws -> URL {
    let files = FileManager.default
    let folder =
      directory.map { URL(filePath: $0, directoryHint: .isDirectory) }
      ?? files.temporaryDirectory.appending(
        path: "push-gateway-demo.\(UUID().uuidString.prefix(8))", directoryHint: .isDirectory)
    do {
      try files.createDirectory(at: folder, withIntermediateDirectories: directory != nil)
      guard try files.contentsOfDirectory(atPath: folder.path).isEmpty else {
        throw ValidationError("--directory \(folder.path): is not empty; give another, or empty it")
      }
      try files.setAttributes([.posixPermissions: 0o755], ofItemAtPath: folder.path)
    } catch let error as ValidationError {
      throw error
    } catch {
      throw CommandFailure("cannot make the directory \(folder.path): \(error.localizedDescription)")
    }
    return folder
  }

  /// The script gets the signals and the terminal of this process, and its exit code is the script's.
  private func replaceProcess(by arguments: [String], environment: [String: String]) throws {
    for (name, value) in environment { unsafe setenv(name, value, 1) }
    var pointers: [UnsafeMutablePointer<CChar>?] = unsafe arguments.map { unsafe strdup($0) }
    unsafe pointers.append(nil)
    unsafe execv(arguments[0], pointers)
    throw CommandFailure("cannot run \(arguments[0]): \(unsafe String(cString: strerror(errno)))")
  }
}

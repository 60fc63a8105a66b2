// Embeds files of the repository in the binary, so that the binary is the only file to install.

import Foundation
import PackagePlugin

/// Before a target is compiled, writes `EmbeddedFiles.swift` for it: files of the package, as text.
@main
struct EmbedText: BuildToolPlugin {
  /// For each target that uses the plugin: files by their names, and folders by what comes before a path in its name.
  private static let places = [
    "Gateway": ["": "migrations"], "HTTPSurface": ["": "dashboard", "operations/": "docs/operations"],
    "Lab": ["demo.sh": "scripts/demo.sh", "lib/": "scripts/lib", "postgres.sh": "scripts/postgres.sh"],
  ]

  func createBuildCommands(context: PluginContext, target: any Target) throws -> [Command] {
    guard let places = Self.places[target.name] else {
      throw EmbedTextError(description: "EmbedText: \(target.name) has no place in the plugin's table")
    }
    var files: [(name: String, url: URL)] = []
    for (prefix, path) in places.sorted(by: { $0.key < $1.key }) {
      let folder = context.package.directoryURL.appending(path: path)
      guard prefix.isEmpty || prefix.hasSuffix("/") else {
        files.append((prefix, folder))
        continue
      }
      let paths = try Self.files(below: folder)
      guard !paths.isEmpty else { throw EmbedTextError(description: "EmbedText: \(folder.path) holds no files") }
      files += paths.map { (prefix + $0, folder.appending(path: $0)) }
    }
    let output = context.pluginWorkDirectoryURL.appending(path: "EmbeddedFiles.swift")
    return [
      .buildCommand(
        displayName: "Embedding \(places.values.sorted().joined(separator: " and "))",
        executable: try context.tool(named: "embed-text").url,
        arguments: [output.path] + files.flatMap { [$0.name, $0.url.path] }, inputFiles: files.map(\.url),
        outputFiles: [output])
    ]
  }

  /// Paths below the folder, in the order of their bytes. Hidden files are left out.
  private static func files(below folder: URL) throws -> [String] {
    let isHidden: (String) -> Bool = { $0.split(separator: "/").contains { $0.hasPrefix(".") } }
    return try FileManager.default.subpathsOfDirectory(atPath: folder.path).filter { path in
      var isFolder: ObjCBool = false
      return FileManager.default.fileExists(atPath: folder.appending(path: path).path, isDirectory: &isFolder)
        && !isFolder.boolValue && !isHidden(path)
    }.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
  }
}

struct EmbedTextError: Error, CustomStringConvertible {
  let description: String
}

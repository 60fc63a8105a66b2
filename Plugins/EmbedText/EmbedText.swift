// Embeds files of the repository in the binary, so that the binary is the only file to install.

import Foundation
import PackagePlugin

/// Before a target is compiled, writes `EmbeddedFiles.swift` for it: files below a folder of the package, as text.
@main
struct EmbedText: BuildToolPlugin {
  /// The folder of each target that uses the plugin, and which of its files; nil: all of them.
  private static let folders: [String: (name: String, files: [String]?)] = [
    "Gateway": ("migrations", nil), "HTTPSurface": ("dashboard", nil),
    "Lab": ("scripts", ["demo.sh", "lib/processes.sh", "postgres.sh"]),
  ]

  func createBuildCommands(context: PluginContext, target: any Target) throws -> [Command] {
    guard let (name, chosen) = Self.folders[target.name] else {
      throw EmbedTextError(description: "EmbedText: \(target.name) has no folder in the plugin's table")
    }
    let folder = context.package.directoryURL.appending(path: name)
    let files = try chosen ?? Self.files(below: folder)
    guard !files.isEmpty else { throw EmbedTextError(description: "EmbedText: \(folder.path) holds no files") }
    let output = context.pluginWorkDirectoryURL.appending(path: "EmbeddedFiles.swift")
    return [
      .buildCommand(
        displayName: "Embedding \(name)/", executable: try context.tool(named: "embed-text").url,
        arguments: [folder.path, output.path] + files, inputFiles: files.map { folder.appending(path: $0) },
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

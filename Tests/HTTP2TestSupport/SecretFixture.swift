// Files with secrets, with the mode that the gateway requires: not readable by others.

import Foundation

/// Writes files with secrets.
public enum SecretFixture {
  /// Replaces a file in one step.
  ///
  /// - Parameter mode: of the new file.
  public static func write(_ content: some Sequence<UInt8>, to path: String, mode: Int = 0o600) throws {
    let draft = path + ".draft"
    guard
      FileManager.default.createFile(
        atPath: draft, contents: Data(content), attributes: [.posixPermissions: mode]),
      rename(draft, path) == 0
    else { throw CocoaError(.fileWriteUnknown) }
  }

  public static func write(_ text: String, to path: String, mode: Int = 0o600) throws {
    try write(text.utf8, to: path, mode: mode)
  }
}

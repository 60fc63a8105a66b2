// What the tests of the configuration write and read.

import Foundation
import HTTP2TestSupport

@testable import Settings

/// A folder with the files a configuration names; removed with its owner.
package final class ConfigurationFolder {
  package let path: String

  package init() throws {
    path = FileManager.default.temporaryDirectory.appendingPathComponent("configuration-\(UUID())").path
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    for name in ["key.p8", "account.json", "token", "ca.pem"] { try write("x", to: name) }
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  package func write(_ text: String, to name: String, mode: Int = 0o600) throws {
    try SecretFixture.write(text, to: path + "/" + name, mode: mode)
  }

  package func load(
    _ yaml: String, _ environment: [String: String] = [:], mode: Int = 0o600
  ) throws -> GatewayConfiguration {
    try write(yaml, to: "gateway.yaml", mode: mode)
    return try GatewayConfiguration.load(file: path + "/gateway.yaml", environment: environment)
  }

  /// The message without the folder's name; empty when nothing is wrong.
  package func message(_ yaml: String, _ environment: [String: String] = [:], mode: Int = 0o600) throws -> String {
    do {
      _ = try load(yaml, environment, mode: mode)
      return ""
    } catch let error as ConfigurationError {
      return error.description.replacing(path + "/", with: "")
    }
  }
}

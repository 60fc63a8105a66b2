// Where the configuration comes from, to be read more than once.

/// The YAML file, if there is one, and the environment above it.
package struct ConfigurationFile: Sendable {
  /// Nil for the environment alone.
  package var path: String?
  package var environment: [String: String]

  package init(path: String?, environment: [String: String]) {
    self.path = path
    self.environment = environment
  }

  /// Reads and checks everything.
  ///
  /// - Throws: every problem found, not only the first.
  package func load() throws(ConfigurationError) -> GatewayConfiguration {
    try GatewayConfiguration.load(file: path, environment: environment)
  }
}

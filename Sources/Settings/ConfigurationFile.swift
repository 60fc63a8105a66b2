// The sources of the configuration, which may be read again later.

/// The YAML file, if there is one, and the environment, which overrides it.
package struct ConfigurationFile: Sendable {
  /// Nil if there is only the environment.
  package var path: String?
  package var environment: [String: String]

  package init(path: String?, environment: [String: String]) {
    self.path = path
    self.environment = environment
  }

  /// Reads and checks the whole configuration.
  ///
  /// - Throws: every problem found, not only the first.
  package func load() throws(ConfigurationError) -> GatewayConfiguration {
    try GatewayConfiguration.load(file: path, environment: environment)
  }
}

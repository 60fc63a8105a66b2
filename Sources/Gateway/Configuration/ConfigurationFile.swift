// Where the configuration comes from, to be read more than once.

/// The YAML file, if there is one, and the environment above it.
struct ConfigurationFile: Sendable {
  /// Nil for the environment alone.
  var path: String?
  var environment: [String: String]

  /// Reads and checks everything.
  ///
  /// - Throws: every problem found, not only the first.
  func load() throws(ConfigurationError) -> GatewayConfiguration {
    try GatewayConfiguration.load(file: path, environment: environment)
  }
}

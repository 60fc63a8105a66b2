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

  /// Where the value of a key comes from, for a fault that is found later, such as one of a key file.
  package func origin(of key: String) -> ConfigurationProblem.Origin {
    let source = ConfigurationSource(
      yaml: path.flatMap { try? ConfigurationYAML.text(ofFile: $0) }, environment: environment)
    return source.settings.first { $0.key.joined(separator: ".") == key }?.value.origin ?? .file(line: nil)
  }

  /// Reads and checks the whole configuration.
  ///
  /// - Throws: every problem found, not only the first.
  package func load() throws(ConfigurationError) -> GatewayConfiguration {
    try GatewayConfiguration.load(file: path, environment: environment)
  }
}

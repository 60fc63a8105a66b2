// Everything that is wrong with a configuration, in one message.

/// One problem of a configuration, and its place.
package struct ConfigurationProblem: Equatable, Sendable {
  /// Where a value came from.
  package enum Origin: Equatable, Sendable {
    /// A line of the file, counted from 1; nil if there is none, for example for a missing key.
    case file(line: Int?)
    case environment(variable: String)
    /// A file that the configuration names.
    case otherFile(name: String, line: Int?)

    var isFile: Bool { if case .file = self { true } else { false } }

    /// The same place with another line, if it is in a file.
    package func at(line: Int?) -> Origin {
      guard let line else { return self }
      return switch self {
      case .file: .file(line: line)
      case .environment: self
      case .otherFile(let name, _): .otherFile(name: name, line: line)
      }
    }
  }

  package var origin: Origin
  /// For sorting: problems without a line come last.
  fileprivate var line: Int {
    if case .file(let line?) = origin { line } else { .max }
  }

  /// The key, such as `apps.porteiro.apns.key_file`; empty for the file as a whole.
  package var path: String
  /// What is wrong and how to correct it. Never contains a value that may be a secret.
  package var message: String

  package init(origin: Origin, path: String, message: String) {
    self.origin = origin
    self.path = path
    self.message = message
  }
}

/// Why a configuration cannot be used.
package struct ConfigurationError: Error, Equatable, CustomStringConvertible, Sendable {
  /// The path of the file; nil if there is none.
  package var file: String?
  /// In the order of the file.
  package let problems: [ConfigurationProblem]

  package init(file: String?, problems: [ConfigurationProblem]) {
    self.file = file
    self.problems = problems.enumerated()
      .sorted { ($0.element.line, $0.offset) < ($1.element.line, $1.offset) }
      .map(\.element)
  }

  package var description: String {
    problems.map { problem in
      let place: String =
        switch problem.origin {
        case .file(let line): (file ?? "configuration") + (line.map { ":\($0)" } ?? "")
        case .environment(let variable): "environment variable \(variable)"
        case .otherFile(let name, let line): name + (line.map { ":\($0)" } ?? "")
        }
      return problem.path.isEmpty ? "\(place): \(problem.message)" : "\(place): \(problem.path): \(problem.message)"
    }.joined(separator: "\n")
  }
}

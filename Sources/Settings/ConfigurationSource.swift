// The settings as given: the values of the file with their lines, overridden by the environment.

internal import Runtime
internal import Yams

/// Values by key path, before they are interpreted.
struct ConfigurationSource {
  struct Setting {
    var text: String
    var origin: ConfigurationProblem.Origin
  }

  private(set) var settings: [[String]: Setting] = [:]
  /// The sections that are present, empty or not, with their places.
  private(set) var sections: [[String]: ConfigurationProblem.Origin] = [:]
  /// The values that are mappings with free names.
  private(set) var trees: [[String]: ConfigurationTree] = [:]
  /// The URLs of databases from the file with their keys, whatever the environment contains.
  private(set) var fileDatabases: [(path: [String], setting: Setting)] = []
  private(set) var problems: [ConfigurationProblem] = []
  /// The sections and keys at the top whose name is written wrongly. That they are missing is not reported as well.
  private(set) var misspelt: Set<String> = []
  /// False if the file is not a YAML mapping. Then missing keys are not reported.
  private(set) var isReadable = true

  /// - Parameters:
  ///   - yaml: the text of the file; nil if there is none.
  ///   - environment: all variables; those without the prefix are ignored.
  init(yaml: String?, environment: [String: String]) {
    if let yaml { read(yaml) }
    fileDatabases = settings.filter { $0.key == ["database"] || $0.key.first == "databases" }
      .map { ($0.key, $0.value) }.sorted { $0.path.lexicographicallyPrecedes($1.path) }
    overlay(environment)
  }

  /// The names in a section, sorted.
  func names(below section: [String]) -> [String] {
    let paths = Array(settings.keys) + Array(sections.keys) + Array(trees.keys)
    return Set(paths.filter { $0.count > section.count && $0.starts(with: section) }.map { $0[section.count] }).sorted()
  }

  /// Whether a section is present, even if it is empty.
  func has(_ section: [String]) -> Bool {
    sections[section] != nil || settings.keys.contains { $0.count > section.count && $0.starts(with: section) }
  }

  /// Where a key or section was set, or what is below it; the file as a whole if nowhere.
  func origin(of path: some Collection<String>) -> ConfigurationProblem.Origin {
    let path = Array(path)
    if let origin = settings[path]?.origin ?? sections[path] { return origin }
    let below = settings.filter { $0.key.starts(with: path) }.map(\.value.origin)
    return below.contains { $0.isFile } ? .file(line: nil) : below.first ?? .file(line: nil)
  }

  // MARK: - The file

  private mutating func read(_ yaml: String) {
    do throws(ConfigurationYAML.Fault) {
      guard let root = try ConfigurationYAML.compose(yaml) else { return }  // an empty file is an empty configuration
      guard case .mapping(let mapping) = root else {
        isReadable = false
        return problem(root.mark?.line, [], "must be a mapping of keys, such as database: or apps:")
      }
      read(mapping, at: [])
    } catch {
      isReadable = false
      problem(error.line, [], error.message)
    }
  }

  private mutating func read(_ mapping: Node.Mapping, at path: [String]) {
    let known = ConfigurationKey.children(of: path)
    /// The section without keys that the current key follows: it may be meant to be below it.
    var empty: String?
    for (key, value) in mapping {
      let line = key.mark?.line
      guard let name = key.scalar?.string else {
        problem(line, path, "a key must be a plain word")
        continue
      }
      let here = path + [name]
      if let empty, isMeant(name, value, below: path + [empty]) {
        problem(line, path + [empty, name], "must be indented deeper than \(empty)")
        continue
      }
      empty = value.null != nil && !ConfigurationKey.children(of: here).isEmpty ? name : nil
      if known == ["*"] {
        guard Self.isName(name) else {
          problem(
            line, here,
            "\(path == ["apps"] ? "the name of an app" : path == ["databases"] ? "the name of a database" : "a key") must begin with a letter or digit and have at most 64 letters, digits, dots, dashes and underscores"
          )
          continue
        }
      } else if !known.contains(name) {
        if path.isEmpty, let meant = Suggestion.nearest(to: name, among: known) { misspelt.insert(meant) }
        problem(line, here, "unknown key" + Self.suggestion(for: name, among: known))
        continue
      }
      read(value, at: here, line: line)
    }
  }

  /// Whether a key that follows a section without keys belongs into it: only there is it, or what is below it, known.
  private func isMeant(_ name: String, _ value: Node, below section: [String]) -> Bool {
    let (here, there) = (ConfigurationKey.children(of: section.dropLast()), ConfigurationKey.children(of: section))
    if here != ["*"] {
      return !here.contains(name)
        && (there.contains(name) || there == ["*"] && Suggestion.nearest(to: name, among: here) == nil)
    }
    guard there.contains(name) else { return false }
    let known = ConfigurationKey.children(of: section + [name])
    return value.mapping?.allSatisfy { pair in pair.key.string.map(known.contains) ?? false } ?? known.isEmpty
  }

  private mutating func read(_ value: Node, at path: [String], line: Int?) {
    let isSection = !ConfigurationKey.children(of: path).isEmpty
    switch value {
    case .mapping(let mapping) where ConfigurationKey.isTree(path):
      tree(at: path, .file(line: line)) { () throws(ConfigurationYAML.Fault) in
        try ConfigurationTree(mapping, origin: .file(line: line))
      }
    case _ where ConfigurationKey.isTree(path) && value.null == nil:
      problem(line, path, "must be a section: PROVIDER: {KIND: {…}}")
    case .mapping(let mapping) where isSection:
      sections[path] = .file(line: line)
      read(mapping, at: path)
    case .scalar where isSection && value.null != nil: sections[path] = .file(line: line)
    case .scalar(let scalar) where !isSection:
      guard value.null == nil else { return problem(line, path, "has no value") }
      settings[path] = Setting(text: scalar.string, origin: .file(line: line))
    default:
      problem(
        line, path,
        isSection
          ? "must be a section with keys below it: "
            + ConfigurationKey.children(of: path).joined(separator: ", ").replacing(
              "*", with: path == ["databases"] ? "the names of databases" : "the names of apps")
          : "must be a single value, not a \(value.sequence == nil ? "section" : "list")")
    }
  }

  private mutating func tree(
    at path: [String], _ origin: ConfigurationProblem.Origin,
    _ make: () throws(ConfigurationYAML.Fault) -> ConfigurationTree
  ) {
    do throws(ConfigurationYAML.Fault) {
      trees[path] = try make()
    } catch {
      problems.append(
        ConfigurationProblem(
          origin: origin.at(line: error.line), path: path.joined(separator: "."), message: error.message))
    }
  }

  private static func isName(_ name: String) -> Bool {
    guard let first = name.first, first != ".", first != "-", first != "_" else { return false }
    return name.count <= 64 && name.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "._-".contains($0)) }
  }

  private static func suggestion(for name: String, among known: [String]) -> String {
    let near = Suggestion.text(for: name, among: known)
    return near.isEmpty ? "; known keys: \(known.joined(separator: ", "))" : near
  }

  private mutating func problem(_ line: Int?, _ path: [String], _ message: String) {
    problems.append(
      ConfigurationProblem(origin: .file(line: line), path: path.joined(separator: "."), message: message))
  }

  // MARK: - The environment

  private mutating func overlay(_ environment: [String: String]) {
    let (apps, databases) = (names(below: ["apps"]), names(below: ["databases"]))
    for (variable, text) in environment.sorted(by: { $0.key < $1.key }) where Self.isOurs(variable) && !text.isEmpty {
      if let path = ConfigurationKey.path(forVariable: variable, apps: apps, databases: databases),
        ConfigurationKey.isTree(path)
      {
        let origin = ConfigurationProblem.Origin.environment(variable: variable)
        tree(at: path, origin) { () throws(ConfigurationYAML.Fault) in
          try ConfigurationTree(text: text, origin: origin)
        }
      } else if let path = ConfigurationKey.path(forVariable: variable, apps: apps, databases: databases) {
        settings[path] = Setting(text: text, origin: .environment(variable: variable))
      } else {
        let near = Suggestion.text(for: variable, among: ConfigurationKey.variables(apps: apps))
        problems.append(
          ConfigurationProblem(
            origin: .environment(variable: variable), path: "",
            message: near.isEmpty
              ? "does not match any key; push-gateway check-config --help lists the keys"
              : "does not match any key\(near)"))
      }
    }
  }

  /// Whether a variable should set a key. Not `PUSH_GATEWAY_CONFIG`, which names the file; not the test suite's
  /// variables; and not those that Kubernetes sets in every container if there is a Service named push-gateway.
  private static func isOurs(_ variable: String) -> Bool {
    let prefix = ConfigurationKey.variablePrefix
    guard variable.hasPrefix(prefix), variable != prefix + "CONFIG" else { return false }
    return !["TEST_", "SERVICE_", "PORT"].contains { variable.hasPrefix(prefix + $0) }
  }
}

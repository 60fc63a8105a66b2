// Typed access to the settings. A value that is wrong is noted and replaced, so that one run finds every problem.

internal import Dialects
internal import Foundation
internal import Runtime
#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

struct ConfigurationReader {
  let source: ConfigurationSource
  /// The folder that relative paths in the file start from.
  let folder: String
  private(set) var problems: [ConfigurationProblem]

  init(_ source: ConfigurationSource, folder: String) {
    self.source = source
    self.folder = folder
    problems = source.problems
  }

  /// Whether a section or something in it was refused already, so that it only seems to be empty.
  func hasProblems(in section: [String]) -> Bool {
    let path = section.joined(separator: ".")
    return problems.contains { $0.path == path || $0.path.hasPrefix(path + ".") }
  }

  /// Notes a problem with a value that is there, or with the place where one is missing.
  mutating func note(_ path: [String], _ message: String) {
    let origin = source.settings[path]?.origin ?? source.sections[path] ?? .file(line: nil)
    problems.append(ConfigurationProblem(origin: origin, path: path.joined(separator: "."), message: message))
  }

  /// Notes a problem with a value of the file, which another may go before.
  mutating func note(_ setting: ConfigurationSource.Setting, _ path: [String], _ message: String) {
    problems.append(
      ConfigurationProblem(origin: setting.origin, path: path.joined(separator: "."), message: message))
  }

  /// Notes a problem inside a tree.
  mutating func note(_ tree: ConfigurationTree, at member: String, below path: [String], _ message: String) {
    let path = path.joined(separator: ".")
    problems.append(
      ConfigurationProblem(
        origin: tree.origin(of: member), path: member.isEmpty ? path : "\(path).\(member)", message: message))
  }

  /// Notes a problem with a variable that stands for a key.
  mutating func note(environment variable: String, _ path: [String], _ message: String) {
    problems.append(
      ConfigurationProblem(
        origin: .environment(variable: variable), path: path.joined(separator: "."), message: message))
  }

  func text(_ path: [String]) -> String? { source.settings[path]?.text }

  /// A text that must be there and must not be empty or hold spaces.
  mutating func requiredWord(_ path: [String]) -> String {
    guard let text = text(path) else {
      noteMissing(path)
      return ""
    }
    if text.isEmpty || text.contains(where: \.isWhitespace) { note(path, "must be one word without spaces") }
    return text
  }

  mutating func integer(_ path: [String], in range: ClosedRange<Int>, default fallback: Int) -> Int {
    integer(path, in: range) ?? fallback
  }

  /// Nil where nothing, or nothing good, is given.
  mutating func integer(_ path: [String], in range: ClosedRange<Int>) -> Int? {
    guard let text = text(path) else { return nil }
    guard let number = Int(text) else {
      note(path, "must be a whole number from \(range.lowerBound) to \(range.upperBound)")
      return nil
    }
    guard range.contains(number) else {
      note(path, "is \(number), but must be from \(range.lowerBound) to \(range.upperBound)")
      return nil
    }
    return number
  }

  /// Seconds, with a fraction or without, as whole milliseconds.
  ///
  /// - Parameter fallback: in milliseconds.
  mutating func milliseconds(_ path: [String], inSeconds range: ClosedRange<Int>, default fallback: Int) -> Int {
    guard let text = text(path) else { return fallback }
    guard let seconds = Double(text), Double(range.lowerBound)...Double(range.upperBound) ~= seconds else {
      note(path, "must be a number of seconds from \(range.lowerBound) to \(range.upperBound)")
      return fallback
    }
    return Int((seconds * 1000).rounded())
  }

  /// A locale that chooses one of our languages.
  mutating func locale(_ path: [String]) -> String? {
    guard let text = text(path) else { return nil }
    guard Language(locale: text.utf8) != nil else {
      let known = Language.allCases.map(\.rawValue)
      note(path, "must be in one of the languages there are texts in: \(known.joined(separator: ", "))")
      return nil
    }
    return text
  }

  mutating func choice<Value>(_ path: [String], _ choices: [(String, Value)], default fallback: Value) -> Value {
    guard let text = text(path) else { return fallback }
    if let found = choices.first(where: { $0.0 == text }) { return found.1 }
    let names = choices.map(\.0)
    let near = Suggestion.text(for: text, among: names)
    note(path, "there is no \(text)" + (near.isEmpty ? "; there are \(names.joined(separator: ", "))" : near))
    return fallback
  }

  // MARK: - Files

  mutating func requiredFile(_ path: [String]) -> String {
    guard source.settings[path] != nil else {
      noteMissing(path)
      return ""
    }
    return file(path) ?? ""
  }

  /// A file that must be readable if it is named. A path in the file is relative to the file, one in the environment
  /// to the working directory.
  mutating func file(_ path: [String]) -> String? {
    guard let setting = source.settings[path] else { return nil }
    var name = setting.text
    if case .file = setting.origin, !name.hasPrefix("/"), !folder.isEmpty { name = folder + "/" + name }
    let descriptor = unsafe open(name, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      let reason = unsafe String(cString: strerror(errno))
      let shown =
        Self.isFileName(setting.text) ? name : "of this name, which is not shown, for it may be the secret itself"
      note(path, "cannot read the file \(shown): \(reason)")
      return nil
    }
    defer { close(descriptor) }
    var status = stat()
    if unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFDIR {
      note(path, "\(name) is a directory, not a file")
      return nil
    }
    return name
  }

  /// Whether it can only be meant as a name: a key, or a token, is often put where its file belongs.
  private static func isFileName(_ text: String) -> Bool {
    text.utf8.count <= 255 && text.utf8.contains { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: ".") }
      && text.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "/"), UInt8(ascii: "."), UInt8(ascii: "_"),
          UInt8(ascii: "-"):
          true
        default: false
        }
      } && !text.hasPrefix("-----")
  }

  /// The mapping in a file that could be opened.
  mutating func tree(_ file: String, _ path: [String]) -> ConfigurationTree? {
    let origin = ConfigurationProblem.Origin.otherFile(name: file, line: nil)
    do throws(ConfigurationYAML.Fault) {
      guard let text = try? String(contentsOfFile: file, encoding: .utf8) else {
        throw ConfigurationYAML.Fault(message: "cannot be read: is it UTF-8?")
      }
      return try ConfigurationTree(text: text, origin: origin)
    } catch {
      problems.append(
        ConfigurationProblem(
          origin: origin.at(line: error.line), path: path.joined(separator: "."), message: error.message))
      return nil
    }
  }

  // MARK: - Addresses

  /// `https://host[:port]`: the gateway adds the path itself.
  mutating func providerURL(_ path: [String], default fallback: String) -> GatewayConfiguration.ProviderURL {
    let text = text(path) ?? fallback
    let scheme = "https://"
    guard text.lowercased().hasPrefix(scheme) else {
      note(
        path,
        text.lowercased().hasPrefix("http://")
          ? "must begin with https://: tokens and keys never travel in the clear"
          : "must be a URL such as \(fallback)")
      return GatewayConfiguration.ProviderURL(host: "", port: 443)
    }
    var authority = text.dropFirst(scheme.count)
    if authority.last == "/" { authority.removeLast() }
    if authority.contains(where: { "/?#".contains($0) }) {
      note(path, "must end after host and port, as \(fallback) does: the gateway adds the path itself")
    } else if authority.contains("@") {
      note(path, "must have no user name or password")
    } else if let found = Self.hostAndPort(authority, defaultPort: 443), found.port != 0 {
      return GatewayConfiguration.ProviderURL(host: found.host, port: found.port)
    } else {
      note(path, "has no valid host and port (1 to 65535); it must look like \(fallback)")
    }
    return GatewayConfiguration.ProviderURL(host: "", port: 443)
  }

  /// `http://host:port` of a proxy, or nil where it is noted what is wrong. Nothing of it is told: it may have a password in it.
  mutating func proxyURL(_ path: [String]) -> (host: String, port: UInt16)? {
    guard let text = text(path) else {
      noteMissing(path)
      return nil
    }
    let scheme = "http://"
    let form = "\(scheme)proxy.example:3128"
    let lowered = text.lowercased()
    guard lowered.hasPrefix(scheme) else {
      if lowered.hasPrefix("https://") {
        note(
          path,
          "must begin with \(scheme): a proxy is spoken to in clear text, and providers through it with TLS all the same; "
            + "for one that wants TLS itself run a forwarder such as stunnel on this machine")
      } else if lowered.hasPrefix("socks") {
        note(path, "must begin with \(scheme): SOCKS is not spoken; name an HTTP proxy that takes CONNECT")
      } else {
        note(path, "must be a URL such as \(form), or none")
      }
      return nil
    }
    var authority = text.dropFirst(scheme.count)
    if authority.last == "/" { authority.removeLast() }
    if authority.contains("@") {
      let file = (path.dropLast() + ["credentials_file"]).joined(separator: ".")
      note(path, "must have no user name or password: put user:password into a file, and name that in \(file)")
    } else if let found = Self.hostAndPort(authority, defaultPort: nil), found.port != 0 {
      return found
    } else {
      note(path, "must be host and port (1 to 65535) and nothing else, such as \(form)")
    }
    return nil
  }

  mutating func listener(_ path: [String], default fallback: String) -> GatewayConfiguration.Listener {
    guard let found = Self.hostAndPort((text(path) ?? fallback)[...], defaultPort: nil) else {
      note(path, "must be host:port with a port from 0 to 65535, such as \(fallback), 0.0.0.0:8080 or [::1]:8080")
      return GatewayConfiguration.Listener(host: "", port: 0)
    }
    return GatewayConfiguration.Listener(host: found.host, port: found.port)
  }

  /// Names of hosts, without ports, with commas or spaces between them.
  mutating func hosts(_ path: [String]) -> [String] {
    let words = (text(path) ?? "").split { $0 == "," || $0.isWhitespace }
    for word in words where Self.hostAndPort(word, defaultPort: 0)?.port != 0 {
      note(path, "must be names of hosts without ports, with commas between them, such as push.example.com")
    }
    return words.map(String.init)
  }

  /// Addresses and networks, with commas or spaces between them.
  mutating func ranges(_ path: [String]) -> [IPRange] {
    (text(path) ?? "").split { $0 == "," || $0.isWhitespace }.compactMap { word in
      guard let range = IPRange(word) else {
        note(path, "must be addresses or networks with commas between them, such as 127.0.0.1, 10.0.0.0/8, fd00::/8")
        return nil
      }
      if !range.mayBeOneNetwork {
        note(
          path,
          "\(word) is too wide: whoever connects from there could say that it is another address; name the proxies, in networks of at most "
            + "a /8 (IPv6: a /16, or fc00::/7)")
      }
      return range
    }
  }

  /// `host`, `host:port`, `[v6]` or `[v6]:port`; nil for anything else.
  private static func hostAndPort(_ text: Substring, defaultPort: UInt16?) -> (host: String, port: UInt16)? {
    var host = text
    var rest: Substring = ""
    if text.first == "[" {
      guard let end = text.firstIndex(of: "]") else { return nil }
      host = text[text.index(after: text.startIndex)..<end]
      rest = text[text.index(after: end)...]
      guard host.contains(":"), host.allSatisfy({ $0.isHexDigit || ":.%".contains($0) }) else { return nil }
    } else {
      if let colon = text.firstIndex(of: ":") {
        host = text[..<colon]
        rest = text[colon...]
      }
      guard host.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber || ".-_".contains($0)) }) else { return nil }
    }
    guard !host.isEmpty else { return nil }
    if rest.isEmpty { return defaultPort.map { (String(host), $0) } }
    guard rest.first == ":", rest.dropFirst().allSatisfy(\.isNumber), let port = UInt16(rest.dropFirst()) else {
      return nil
    }
    return (String(host), port)
  }

  private mutating func noteMissing(_ path: [String]) {
    let section = Array(path.dropLast())
    let origin = source.sections[section] ?? .file(line: nil)
    problems.append(
      ConfigurationProblem(
        origin: origin, path: path.joined(separator: "."),
        message: "is missing; it may also be given as \(ConfigurationKey.variable(for: path))"))
  }
}

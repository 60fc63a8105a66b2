// Typed access to the settings. An invalid value is recorded as a problem and replaced, so that one run finds every
// problem.

internal import Dialects
internal import Foundation
internal import Providers
internal import Runtime
#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

struct ConfigurationReader {
  let source: ConfigurationSource
  /// The directory that relative paths in the file start from.
  let folder: String
  private(set) var problems: [ConfigurationProblem]

  init(_ source: ConfigurationSource, folder: String) {
    self.source = source
    self.folder = folder
    problems = source.problems
  }

  /// Whether something in a section was already refused, so that the section may only seem to be empty.
  func hasProblems(in section: [String]) -> Bool {
    let path = section.joined(separator: ".")
    return problems.contains { $0.path == path || $0.path.hasPrefix(path + ".") }
  }

  /// Records a problem at a key: the line of its value, or of the section where it is missing.
  mutating func note(_ path: [String], _ message: String) {
    problems.append(
      ConfigurationProblem(origin: source.origin(of: path), path: path.joined(separator: "."), message: message))
  }

  /// Records a problem with a value of the file, which another source may override.
  mutating func note(_ setting: ConfigurationSource.Setting, _ path: [String], _ message: String) {
    problems.append(
      ConfigurationProblem(origin: setting.origin, path: path.joined(separator: "."), message: message))
  }

  /// Records a problem inside a tree.
  mutating func note(_ tree: ConfigurationTree, at member: String, below path: [String], _ message: String) {
    let path = path.joined(separator: ".")
    problems.append(
      ConfigurationProblem(
        origin: tree.origin(of: member), path: member.isEmpty ? path : "\(path).\(member)", message: message))
  }

  /// Records a problem with an environment variable that sets a key.
  mutating func note(environment variable: String, _ path: [String], _ message: String) {
    problems.append(
      ConfigurationProblem(
        origin: .environment(variable: variable), path: path.joined(separator: "."), message: message))
  }

  func text(_ path: [String]) -> String? { source.settings[path]?.text }

  /// A required text, which must not be empty or contain spaces.
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

  /// Nil if the value is missing or invalid.
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

  /// A number of seconds, with or without a fraction, as whole milliseconds.
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

  /// A locale in a supported language.
  mutating func locale(_ path: [String]) -> String? {
    guard let text = text(path) else { return nil }
    guard Language(locale: text.utf8) != nil else {
      let known = Language.allCases.map(\.rawValue)
      note(path, "must be in one of the supported languages: \(known.joined(separator: ", "))")
      return nil
    }
    return text
  }

  /// A name that can be shown.
  mutating func name(_ path: [String]) -> String? {
    guard let text = text(path) else { return nil }
    if text.allSatisfy(\.isWhitespace) || text.utf8.count > 100 { note(path, "must be a name of at most 100 bytes") }
    return text
  }

  mutating func choice<Value>(_ path: [String], _ choices: [(String, Value)], default fallback: Value) -> Value {
    guard let text = text(path) else { return fallback }
    if let found = choices.first(where: { $0.0 == text }) { return found.1 }
    let names = choices.map(\.0)
    let near = Suggestion.text(for: text, among: names)
    note(path, "unknown value \(text)" + (near.isEmpty ? "; must be one of \(names.joined(separator: ", "))" : near))
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

  /// A file, which must be readable. A path in the file is relative to the file; a path in the environment is relative
  /// to the working directory.
  mutating func file(_ path: [String]) -> String? {
    guard let setting = source.settings[path] else { return nil }
    var name = setting.text
    if case .file = setting.origin, !name.hasPrefix("/"), !folder.isEmpty { name = folder + "/" + name }
    let descriptor = unsafe open(name, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      let reason = unsafe String(cString: strerror(errno))
      let shown =
        Self.isFileName(setting.text) ? name : "with this name (not shown, because it may be the secret itself)"
      note(path, Self.unexpanded(setting.text) ?? "cannot read the file \(shown): \(reason)")
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

  /// The fault of a file name with `~` or a variable, which a shell would have replaced; nil if it has none. Like `isFileName`, it shows
  /// no text that may be a secret.
  private static func unexpanded(_ text: String) -> String? {
    for mark in ["~/", "$HOME/", "${HOME}/"] where text.hasPrefix(mark) {
      let rest = "/" + text.dropFirst(mark.count)
      guard isFileName(rest) else { return nil }
      let home = FileManager.default.homeDirectoryForCurrentUser.path
      return "\(mark.dropLast()) is not expanded here: write the absolute path, such as \(home)\(rest)"
    }
    guard text.contains("$"), isFileName(text.filter { !"${}".contains($0) }) else { return nil }
    return "variables are not expanded here: write the absolute path"
  }

  /// Whether a text is clearly a file name. A common mistake is to put a key or token where its file's name belongs.
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

  /// The mapping in a file that was found to be readable.
  mutating func tree(_ file: String, _ path: [String]) -> ConfigurationTree? {
    let origin = ConfigurationProblem.Origin.otherFile(name: file, line: nil)
    do throws(ConfigurationYAML.Fault) {
      return try ConfigurationTree(text: ConfigurationYAML.text(ofFile: file), origin: origin)
    } catch {
      problems.append(
        ConfigurationProblem(
          origin: origin.at(line: error.line), path: path.joined(separator: "."), message: error.message))
      return nil
    }
  }

  // MARK: - Addresses

  /// `https://host[:port]`. The gateway appends the path.
  mutating func providerURL(_ path: [String], default fallback: String) -> GatewayConfiguration.ProviderURL {
    let text = text(path) ?? fallback
    let scheme = "https://"
    guard text.lowercased().hasPrefix(scheme) else {
      note(
        path,
        text.lowercased().hasPrefix("http://")
          ? "must begin with https://, because tokens and keys must not be sent in clear text"
          : "must be a URL such as \(fallback)")
      return GatewayConfiguration.ProviderURL(host: "", port: 443)
    }
    var authority = text.dropFirst(scheme.count)
    if authority.last == "/" { authority.removeLast() }
    if authority.contains(where: { "/?#".contains($0) }) {
      note(path, "must end after host and port, like \(fallback): the gateway appends the path")
    } else if authority.contains("@") {
      note(path, "must not contain a user name or password")
    } else if let found = Self.hostAndPort(authority, defaultPort: 443), found.port != 0 {
      return GatewayConfiguration.ProviderURL(host: found.host, port: found.port)
    } else {
      note(path, "has no valid host and port (1 to 65535); it must look like \(fallback)")
    }
    return GatewayConfiguration.ProviderURL(host: "", port: 443)
  }

  /// Hosts of push services, separated by commas or spaces; those of the browsers if there is no value.
  mutating func pushOrigins(_ path: [String]) -> WebPushAllowedOrigins {
    guard let text = text(path) else { return .browsers }
    do throws(WebPushAllowedOrigins.Fault) {
      return try WebPushAllowedOrigins(text.split { $0 == "," || $0.isWhitespace }.map(String.init))
    } catch {
      note(path, error.description)
      return .browsers
    }
  }

  /// `http://host:port` of a proxy; nil if it is invalid. Problems do not quote the value, because it may contain a
  /// password.
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
          "must begin with \(scheme): the connection to the proxy is clear text, and the connection through it to the provider "
            + "is TLS; for a proxy that requires TLS itself, run a forwarder such as stunnel on this machine")
      } else if lowered.hasPrefix("socks") {
        note(path, "must begin with \(scheme): SOCKS is not supported; use an HTTP proxy that supports CONNECT")
      } else {
        note(path, "must be a URL such as \(form), or none")
      }
      return nil
    }
    var authority = text.dropFirst(scheme.count)
    if authority.last == "/" { authority.removeLast() }
    if authority.contains("@") {
      let file = (path.dropLast() + ["credentials_file"]).joined(separator: ".")
      note(path, "must not contain a user name or password: put user:password into a file, and set \(file)")
    } else if let found = Self.hostAndPort(authority, defaultPort: nil), found.port != 0 {
      return found
    } else {
      note(path, "must be host and port (1 to 65535) and nothing else, such as \(form)")
    }
    return nil
  }

  /// `https://host[:port][/path]` of a receiver, or `http://` on a loopback address, and its host and port. Problems do not quote
  /// the value, because its path may be a secret.
  mutating func webhookURL(_ path: [String]) -> (url: String, host: String) {
    guard let text = text(path) else {
      noteMissing(path)
      return ("", "")
    }
    let form = "https://backend.example.com/push-events"
    let isClear = text.lowercased().hasPrefix("http://")
    guard isClear || text.lowercased().hasPrefix("https://") else {
      note(path, "must be a URL such as \(form)")
      return ("", "")
    }
    let rest = text.dropFirst(isClear ? 7 : 8)
    let authority = rest.prefix { !"/?#".contains($0) }
    guard !text.contains("#"), text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
      note(path, "must be a URL in ASCII without a fragment (#), such as \(form)")
      return ("", "")
    }
    guard !authority.contains("@") else {
      note(path, "must not contain a user name or password: the receiver checks the signature")
      return ("", "")
    }
    guard let found = Self.hostAndPort(authority, defaultPort: isClear ? 80 : 443), found.port != 0 else {
      note(path, "has no valid host and port (1 to 65535); it must look like \(form)")
      return ("", "")
    }
    let isLoopback =
      ["localhost", "::1"].contains(found.host) || found.host.wholeMatch(of: /127(\.\d{1,3}){3}/) != nil
    guard !isClear || isLoopback else {
      note(path, "must begin with https://; http:// is accepted on a loopback address only")
      return ("", "")
    }
    return (text, String(authority))
  }

  mutating func listener(_ path: [String], default fallback: String) -> GatewayConfiguration.Listener {
    guard let found = Self.hostAndPort((text(path) ?? fallback)[...], defaultPort: nil) else {
      note(path, "must be host:port with a port from 0 to 65535, such as \(fallback), 0.0.0.0:8080 or [::1]:8080")
      return GatewayConfiguration.Listener(host: "", port: 0)
    }
    return GatewayConfiguration.Listener(host: found.host, port: found.port)
  }

  /// Host names without ports, separated by commas or spaces.
  mutating func hosts(_ path: [String]) -> [String] {
    let words = (text(path) ?? "").split { $0 == "," || $0.isWhitespace }
    for word in words where Self.hostAndPort(word, defaultPort: 0)?.port != 0 {
      note(path, "must be host names without ports, separated by commas, such as push.example.com")
    }
    return words.map(String.init)
  }

  /// Addresses and networks, separated by commas or spaces.
  ///
  /// - Parameter anyWidth: whether a network may be wider than one organization's.
  mutating func ranges(_ path: [String], anyWidth: Bool = false) -> [IPRange] {
    (text(path) ?? "").split { $0 == "," || $0.isWhitespace }.compactMap { word in
      guard let range = IPRange(word) else {
        note(path, "must be addresses or networks separated by commas, such as 127.0.0.1, 10.0.0.0/8, fd00::/8")
        return nil
      }
      if !anyWidth, !range.mayBeOneNetwork {
        note(
          path,
          "\(word) is too wide: every machine in it could claim another address; give the networks of the proxies, each at most "
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
    problems.append(
      ConfigurationProblem(
        origin: source.origin(of: path.dropLast()), path: path.joined(separator: "."),
        message: "is missing; it may also be given as \(ConfigurationKey.variable(for: path))"))
  }
}

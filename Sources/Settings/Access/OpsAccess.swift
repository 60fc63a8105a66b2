// The keys http.hosts, http.metrics_key_file, http.trusted_proxies and dashboard.*: who may read and change what on
// http.listen.

internal import Foundation
internal import HTTPTypes
internal import Runtime

extension GatewayConfiguration {
  /// Access to `http.listen`: its host names, trusted proxies, keys and identities.
  package struct OpsAccess: Sendable, Equatable {
    /// The rules for identities that a proxy signs.
    package struct Identity: Sendable, Equatable {
      /// Name of the header that contains the token.
      package var header: String
      /// A JWK Set. The file is checked for changes at each use.
      package var keysFile: String
      package var rules: IdentityRules
    }

    /// Further host names of the listener.
    package var hosts: [String] = []
    /// The proxies whose `X-Forwarded-For` is trusted.
    package var trustedProxies = TrustedProxies()
    /// The key that gives access to /metrics only.
    package var metricsKey: OpsKey?
    /// Sorted by name.
    package var opsKeys: [OpsKey] = []
    package var identity: Identity?

    /// All keys, each with its path in the configuration.
    package var keys: [(path: String, key: OpsKey)] {
      opsKeys.map { ($0.name == onlyOpsKey ? "dashboard.ops_key_file" : "dashboard.ops_keys.\($0.name)", $0) }
        + [metricsKey].compactMap { $0.map { ("http.metrics_key_file", $0) } }
    }
  }

  /// The name of the key of `dashboard.ops_key_file`.
  package static let onlyOpsKey = "ops"

  static func opsAccess(_ reader: inout ConfigurationReader, _ privacy: SecretFile.Privacy) -> OpsAccess {
    OpsAccess(
      hosts: reader.hosts(["http", "hosts"]) + reader.hosts(["dashboard", "hosts"]),
      trustedProxies: TrustedProxies(reader.ranges(["http", "trusted_proxies"])),
      metricsKey: reader.file(["http", "metrics_key_file"]).map {
        OpsKey(name: "metrics", file: $0, privacy: privacy)
      }, opsKeys: opsKeys(&reader, privacy),
      identity: identity(["dashboard", "identity"], &reader))
  }

  private static func opsKeys(_ reader: inout ConfigurationReader, _ privacy: SecretFile.Privacy) -> [OpsKey] {
    let path = ["dashboard", "ops_keys"]
    var keys = reader.source.names(below: path).compactMap { name in
      reader.file(path + [name]).map { OpsKey(name: name, file: $0, privacy: privacy) }
    }
    guard let file = reader.file(["dashboard", "ops_key_file"]) else { return keys }
    if keys.contains(where: { $0.name == onlyOpsKey }) {
      reader.note(
        path + [onlyOpsKey],
        "is the name of the key in dashboard.ops_key_file: remove one of the two, or rename this one")
    }
    keys.append(OpsKey(name: onlyOpsKey, file: file, privacy: privacy))
    return keys.sorted { $0.name < $1.name }
  }

  private static func identity(_ path: [String], _ reader: inout ConfigurationReader) -> OpsAccess.Identity? {
    guard reader.source.has(path) else { return nil }
    let header = reader.requiredWord(path + ["header"])
    if !header.isEmpty, HTTPField.Name(header) == nil || ["cookie", "host"].contains(header.lowercased()) {
      reader.note(path + ["header"], "must be the name of a header, such as X-Goog-IAP-JWT-Assertion")
    }
    let issuer = reader.requiredWord(path + ["issuer"])
    let audience = reader.requiredWord(path + ["audience"])
    let file = reader.requiredFile(path + ["jwks_file"])
    let nameClaim =
      reader.text(path + ["name_claim"]).map { _ in reader.requiredWord(path + ["name_claim"]) } ?? "email"
    let allowed = (reader.text(path + ["allowed"]) ?? "").split { $0 == "," || $0.isWhitespace }.map(String.init)
    if allowed.isEmpty || allowed.contains("@") {
      reader.note(
        path + ["allowed"],
        "must be names, or @example.com for all names with this ending, separated by commas; without it, everyone with a "
          + "login at the proxy would be an operator")
    }
    return OpsAccess.Identity(
      header: header, keysFile: file,
      rules: IdentityRules(issuer: issuer, audience: audience, nameClaim: nameClaim, allowed: allowed))
  }
}

// The keys http.hosts, http.metrics_key_file, http.trusted_proxies and dashboard.*: who may read and do what on http.listen.

internal import Foundation
internal import HTTPTypes
internal import Runtime

extension GatewayConfiguration {
  /// Who reaches `http`, by which names, and how they show who they are.
  package struct OpsAccess: Sendable, Equatable {
    /// What a proxy with a login of its own vouches for.
    package struct Identity: Sendable, Equatable {
      /// Name of the header with the token.
      package var header: String
      /// A JWK Set, looked at on every use.
      package var keysFile: String
      package var rules: IdentityRules
    }

    /// Further names of hosts under which it may be reached.
    package var hosts: [String] = []
    /// Whose `X-Forwarded-For` is believed.
    package var trustedProxies = TrustedProxies()
    /// Opens /metrics alone.
    package var metricsKey: OpsKey?
    /// Sorted by name.
    package var opsKeys: [OpsKey] = []
    package var identity: Identity?

    /// All keys, each with its key of the configuration.
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
        path + [onlyOpsKey], "is the name of the key of dashboard.ops_key_file: give only one of them, or another name")
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
        "must be names, or @example.com for all that end so, with commas between them: whom the proxy lets through is not "
          + "yet an operator")
    }
    return OpsAccess.Identity(
      header: header, keysFile: file,
      rules: IdentityRules(issuer: issuer, audience: audience, nameClaim: nameClaim, allowed: allowed))
  }
}

// Creates a certificate authority and a server certificate for simulators on the loopback. Never for production.

internal import Runtime

/// Certificates and keys as PEM texts.
public struct TestCertificates: Sendable {
  /// The authority's certificate, which clients must trust.
  public let authority: [UInt8]
  /// The server's certificate.
  public let certificate: [UInt8]
  /// The server's private key (PKCS#8).
  public let key: [UInt8]

  /// Creates an authority and a certificate (P-256, valid for ten years) for host names and addresses.
  ///
  /// - Parameter hosts: names and IP addresses that the certificate is valid for.
  /// - Throws: if OpenSSL cannot create a key or a certificate, which happens only with an invalid host name.
  public init(hosts: [String]) throws {
    let authorityKey = try SigningKey.generate(for: .es256)
    let serverKey = try SigningKey.generate(for: .es256)
    let authority = try X509Certificate(
      name: "push-gateway simulators", serial: 1, key: authorityKey, issuer: nil,
      extensions: [
        ("basicConstraints", "critical,CA:TRUE,pathlen:0"), ("keyUsage", "critical,keyCertSign,cRLSign"),
        ("subjectKeyIdentifier", "hash"),
      ])
    let names = hosts.map { host in
      SocketAddress(numericHost: host, port: 0) == nil ? "DNS:\(host)" : "IP:\(host)"
    }
    let certificate = try X509Certificate(
      name: hosts.first ?? "localhost", serial: 2, key: serverKey, issuer: (authority, authorityKey),
      extensions: [
        ("basicConstraints", "critical,CA:FALSE"), ("keyUsage", "critical,digitalSignature"),
        ("extendedKeyUsage", "serverAuth"), ("subjectAltName", names.joined(separator: ",")),
        ("authorityKeyIdentifier", "keyid"),
      ])
    self.authority = try authority.pem()
    self.certificate = try certificate.pem()
    key = try serverKey.privateKeyPEM()
  }
}

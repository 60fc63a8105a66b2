// Reads a listener's certificate, key and client authorities, and checks that they can be used together.
//
// The listeners use BoringSSL, by swift-nio-ssl; connections to providers use OpenSSL (docs/adr/0036).

internal import Foundation
import NIOCore
import NIOSSL
package import Runtime
package import Settings

/// A certificate and its key, ready for new connections.
package struct ListenerCertificate: Sendable {
  /// Why the files cannot be used. Names the files, and contains nothing of their content.
  package struct Fault: Error, Equatable, CustomStringConvertible {
    /// A key of the section `tls`.
    package enum File: String {
      case certificate = "certificate_file"
      case key = "key_file"
      case clientAuthorities = "client_ca_file"
    }

    /// The file to correct.
    package let file: File
    package let description: String

    package init(_ file: File, _ description: String) {
      self.file = file
      self.description = description
    }
  }

  /// From this time before its end on, a certificate is warned of, in seconds. certbot renews 30 days before the end.
  package static let warningSeconds: Int64 = 14 * 86_400

  /// Ciphers with forward secrecy and authenticated encryption (RFC 9325 §4.2). TLS 1.3 has no others.
  private static let ciphers: [NIOTLSCipher] = [
    .TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, .TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    .TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, .TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    .TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, .TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
  ]

  let context: NIOSSLContext
  /// The end of the certificate's validity, seconds since 1970.
  package let expiresAtSeconds: Int64

  /// Reads the files.
  ///
  /// - Parameter privacy: the permissions that the key file must have.
  /// - Throws: which file is wrong, and why. An expired certificate is not an error here; the caller decides.
  package init(_ settings: GatewayConfiguration.ListenerTLS, privacy: SecretFile.Privacy) throws(Fault) {
    let chain = try Self.chain(settings.certificateFile)
    guard let leaf = chain.first else {
      throw Self.unusableCertificate(settings.certificateFile)
    }
    let key = try Self.key(settings.keyFile, privacy)
    var configuration = TLSConfiguration.makeServerConfiguration(
      certificateChain: chain.map { .certificate($0) }, privateKey: .privateKey(key))
    configuration.minimumTLSVersion = .tlsv12
    configuration.cipherSuiteValues = Self.ciphers
    configuration.applicationProtocols = ["http/1.1"]
    configuration.renegotiationSupport = .none
    // A peer that does not answer the end of TLS is not waited for any longer.
    configuration.shutdownTimeout = .seconds(1)
    if let file = settings.clientCAFile {
      configuration.trustRoots = .certificates(try Self.authorities(file))
      configuration.sendCANameList = true
      configuration.certificateVerification =
        settings.clientCertificates == .required ? .noHostnameVerification : .optionalVerification
    }
    do {
      context = try NIOSSLContext(configuration: configuration)
    } catch {
      throw Fault(
        .key,
        "\(settings.keyFile) is not the key of the first certificate in \(settings.certificateFile): name the key that belongs to it, "
          + "and put the listener's own certificate first")
    }
    expiresAtSeconds = Int64(leaf.notValidAfter)
  }

  /// The date of the certificate's end, as YYYY-MM-DD.
  package var expiry: String { String(UTCTime(microseconds: expiresAtSeconds * 1_000_000).iso8601.prefix(10)) }

  // MARK: - Files

  private static func chain(_ file: String) throws(Fault) -> [NIOSSLCertificate] {
    do {
      return try NIOSSLCertificate.fromPEMBytes(SecretFile.read(file, privacy: .waived))
    } catch let failure as SecretFile.Failure {
      throw Fault(.certificate, "certificate file \(failure)")
    } catch {
      throw unusableCertificate(file)
    }
  }

  private static func unusableCertificate(_ file: String) -> Fault {
    Fault(
      .certificate,
      "\(file): no usable certificate (PEM): expected the chain, each beginning with '-----BEGIN CERTIFICATE-----'")
  }

  private static func key(_ file: String, _ privacy: SecretFile.Privacy) throws(Fault) -> NIOSSLPrivateKey {
    do {
      return try NIOSSLPrivateKey(bytes: SecretFile.read(file, privacy: privacy), format: .pem)
    } catch let failure as SecretFile.Failure {
      throw Fault(.key, "key file \(failure)")
    } catch {
      throw Fault(
        .key,
        "\(file): no usable private key (PEM, without a passphrase): expected a block that begins with '-----BEGIN PRIVATE KEY-----'"
      )
    }
  }

  private static func authorities(_ file: String) throws(Fault) -> [NIOSSLCertificate] {
    // With an empty list, no client could be verified. That must not be mistaken for a listener that asks for no
    // certificate.
    guard let authorities = try? NIOSSLCertificate.fromPEMFile(file), !authorities.isEmpty else {
      throw Fault(
        .clientAuthorities,
        "\(file): no usable CA certificate (PEM): expected blocks that begin with '-----BEGIN CERTIFICATE-----'")
    }
    return authorities
  }
}

// Reads a listener's certificate, key and client authorities, and checks that they can be used together.

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

  let context: TLSContext
  /// The end of the certificate's validity, seconds since 1970.
  package let expiresAtSeconds: Int64

  /// Reads the files.
  ///
  /// - Parameter privacy: the permissions that the key file must have.
  /// - Throws: which file is wrong, and why. An expired certificate is not an error here; the caller decides.
  package init(_ settings: GatewayConfiguration.ListenerTLS, privacy: SecretFile.Privacy) throws(Fault) {
    let chain = try Self.read(.certificate, settings.certificateFile, .waived)
    let key = try Self.read(.key, settings.keyFile, privacy)
    let clients = settings.clientCAFile.map { file in
      TLSContext.ClientAuthorities(file: file, isRequired: settings.clientCertificates == .required)
    }
    do {
      context = try TLSContext.listener(
        chain: chain, key: key, keySource: settings.keyFile, clients: clients, protocols: ["http/1.1"])
    } catch {
      throw Self.fault(error, settings)
    }
    expiresAtSeconds = context.certificateExpiry ?? 0
  }

  /// The date of the certificate's end, as YYYY-MM-DD.
  package var expiry: String { String(UTCTime(microseconds: expiresAtSeconds * 1_000_000).iso8601.prefix(10)) }

  // MARK: - Files

  private static func read(_ kind: Fault.File, _ file: String, _ privacy: SecretFile.Privacy) throws(Fault) -> [UInt8] {
    do {
      return try SecretFile.read(file, privacy: privacy)
    } catch {
      throw Fault(kind, "\(kind == .key ? "key" : "certificate") file \(error)")
    }
  }

  private static func fault(_ fault: TLSContext.ListenerFault, _ settings: GatewayConfiguration.ListenerTLS) -> Fault {
    switch fault {
    case .certificate(let reason): Fault(.certificate, "certificate \(settings.certificateFile): \(reason)")
    case .key(let error): Fault(.key, error.description)
    case .keyOfAnotherCertificate:
      Fault(
        .key,
        "\(settings.keyFile) is not the key of the first certificate in \(settings.certificateFile): name the key that "
          + "belongs to it, and put the listener's own certificate first")
    case .clientAuthorities:
      Fault(
        .clientAuthorities,
        "\(settings.clientCAFile ?? ""): no usable CA certificate (PEM): expected blocks that begin with "
          + "'-----BEGIN CERTIFICATE-----'")
    case .library(let reason): Fault(.certificate, "OpenSSL cannot serve TLS: \(reason)")
    }
  }
}

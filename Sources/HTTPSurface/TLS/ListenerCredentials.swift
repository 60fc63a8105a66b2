// The current certificate of a listener. It is read again when its files change, and only new connections use the new
// one.
//
// Certificate and key are two files, which are replaced one after the other. If they do not match, a renewal is in
// progress or went wrong: the current certificate stays in use, and the files are read again until they match.

package import Logging
package import Runtime
package import Settings
internal import Synchronization

/// The certificate and key for new connections of a listener.
package final class ListenerCredentials: Sendable {
  private struct State {
    var certificate: ListenerCertificate
    var stamps: [String: FileStamp]
    /// Why the current files are not used; nil if they are.
    var fault: ListenerCertificate.Fault?
  }

  /// The section of the configuration: `http` or `api`.
  let name: String
  let handshakeFailures: HandshakeFailures
  private let settings: GatewayConfiguration.ListenerTLS
  private let privacy: SecretFile.Privacy
  private let clock: any GatewayClock
  private let logger: Logger
  private let state: Mutex<State>

  /// Reads the files.
  ///
  /// - Throws: why they cannot be used.
  package init(
    _ name: String, _ settings: GatewayConfiguration.ListenerTLS, privacy: SecretFile.Privacy,
    clock: any GatewayClock = SystemClock(), logger: Logger
  ) throws(ListenerCertificate.Fault) {
    self.name = name
    handshakeFailures = HandshakeFailures(listener: name, logger: logger, clock: clock)
    self.settings = settings
    self.privacy = privacy
    self.clock = clock
    self.logger = logger
    let stamps = Self.stamps(of: settings)
    let certificate = try ListenerCertificate(settings, privacy: privacy)
    state = Mutex(State(certificate: certificate, stamps: stamps))
    remark(certificate)
  }

  /// The TLS context for the next connection.
  var context: TLSContext { state.withLock { $0.certificate.context } }

  /// The end of the current certificate's validity, in seconds since 1970.
  var expiresAtSeconds: Int64 { state.withLock { $0.certificate.expiresAtSeconds } }

  /// Reads the files again if they have changed, or could not be used last time.
  func look() {
    let stamps = Self.stamps(of: settings)
    let isNew = state.withLock { $0.stamps != stamps || $0.fault != nil }
    if isNew { reload() }
  }

  /// Reads the files again.
  func reload() {
    // Before the files are read, so that a change during the reading is noticed next time.
    let stamps = Self.stamps(of: settings)
    let result = read()
    switch result {
    case .success(let certificate):
      state.withLock { $0 = State(certificate: certificate, stamps: stamps) }
      logger.notice(
        "A listener's certificate was read again",
        metadata: ["listener": "\(name)", "expires": "\(certificate.expiry)"])
      remark(certificate)
    case .failure(let fault):
      // A fault is logged once, and not every two seconds.
      let isNew = state.withLock { state in
        defer { (state.stamps, state.fault) = (stamps, fault) }
        return state.stamps != stamps || state.fault != fault
      }
      guard isNew else { return }
      logger.error(
        "A listener's new certificate cannot be used: the current one stays in use",
        metadata: ["listener": "\(name)", "reason": "\(fault)"])
    }
  }

  private func read() -> Result<ListenerCertificate, ListenerCertificate.Fault> {
    do throws(ListenerCertificate.Fault) {
      let certificate = try ListenerCertificate(settings, privacy: privacy)
      // Old files that were restored by mistake must not replace a certificate that clients still accept.
      if certificate.expiresAtSeconds <= now, expiresAtSeconds > now {
        throw ListenerCertificate.Fault(
          .certificate, "\(settings.certificateFile) expired on \(certificate.expiry)")
      }
      return .success(certificate)
    } catch {
      return .failure(error)
    }
  }

  private func remark(_ certificate: ListenerCertificate) {
    guard certificate.expiresAtSeconds - now < ListenerCertificate.warningSeconds else { return }
    logger.warning(
      "A listener's certificate expires soon, or has expired",
      metadata: ["listener": "\(name)", "expires": "\(certificate.expiry)"])
  }

  private var now: Int64 { clock.wallMilliseconds() / 1000 }

  private static func stamps(of settings: GatewayConfiguration.ListenerTLS) -> [String: FileStamp] {
    let files = [settings.certificateFile, settings.keyFile, settings.clientCAFile].compactMap(\.self)
    return Dictionary(files.compactMap { file in FileStamp(path: file).map { (file, $0) } }) { first, _ in first }
  }
}

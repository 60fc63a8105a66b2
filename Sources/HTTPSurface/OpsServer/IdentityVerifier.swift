// Verifies the identity that an identity proxy signed, with the proxy's public keys. A changed key file is read at the
// next request.

internal import Foundation
import Logging
package import Runtime
import Settings

/// Verifies signed identities with the keys of a file.
package actor IdentityVerifier {
  /// Why the key file cannot be used.
  package struct Fault: Error, Equatable, CustomStringConvertible {
    package let description: String
  }

  /// The maximum size of the key file, well above that of any proxy.
  static let fileMaxBytes = 64 * 1024

  private let rules: IdentityRules
  private let file: String
  private let clock: any GatewayClock
  private let logger: Logger
  private var stamp: FileStamp?
  private var keys: JSONWebKeySet?
  /// The fault that was logged last; nil for none.
  private var fault: Fault?
  private var refusals = TokenBucket(saved: 1, perSecond: 1)

  init(rules: IdentityRules, file: String, logger: Logger, clock: any GatewayClock = SystemClock()) {
    self.rules = rules
    self.file = file
    self.logger = logger
    self.clock = clock
  }

  /// The name in the identity; nil if the proxy's signature, the claims or the list of allowed names do not permit it.
  ///
  /// - Parameter header: the token, or `Bearer` followed by the token.
  func name(in header: String) -> String? {
    let scheme = "bearer "
    let token = header.lowercased().hasPrefix(scheme) ? String(header.dropFirst(scheme.count)) : header
    guard let keys = currentKeys() else { return nil }
    do throws(IdentityRules.Refusal) {
      return try rules.name(in: token, keys: keys, nowSeconds: Double(clock.wallMilliseconds()) / 1000)
    } catch {
      if refusals.consume(clock.now()) {
        logger.warning("An identity was refused", metadata: ["reason": "\(error.rawValue)"])
      }
      return nil
    }
  }

  /// The keys in the file now. While the file cannot be read, no identity is accepted.
  private func currentKeys() -> JSONWebKeySet? {
    let now = FileStamp(path: file)
    if let now, now == stamp, keys != nil { return keys }
    do throws(Fault) {
      keys = try Self.read(file)
      stamp = now
      fault = nil
    } catch {
      keys = nil
      if fault != error {
        logger.error("The keys of an identity proxy cannot be used", metadata: ["reason": "\(error)"])
      }
      fault = error
    }
    return keys
  }

  /// Reads the keys of a file. They are public.
  package static func read(_ file: String) throws(Fault) -> JSONWebKeySet {
    guard let handle = FileHandle(forReadingAtPath: file),
      let text = try? handle.read(upToCount: fileMaxBytes + 1) ?? Data()
    else { throw Fault(description: "\(file): cannot be read; check that the file exists and its permissions") }
    guard text.count <= fileMaxBytes else {
      throw Fault(description: "\(file): is larger than \(fileMaxBytes) bytes, so it is probably the wrong file")
    }
    do throws(JSONWebKeySet.Fault) {
      return try JSONWebKeySet(Array(text))
    } catch {
      throw Fault(description: "\(file): \(error)")
    }
  }
}

// Asks a request's header who its sender is, and believes what the proxy's keys signed. The keys' file is looked at on every use.

internal import Foundation
import Logging
package import Runtime
import Settings

/// Verifies identities with the keys of a file.
package actor IdentityVerifier {
  /// The keys' file cannot serve; says why.
  package struct Fault: Error, Equatable, CustomStringConvertible {
    package let description: String
  }

  /// No proxy's set is larger.
  static let fileMaxBytes = 64 * 1024

  private let rules: IdentityRules
  private let file: String
  private let clock: any GatewayClock
  private let logger: Logger
  private var stamp: FileStamp?
  private var keys: JSONWebKeySet?
  /// What the log was told of last.
  private var fault: Fault?
  private var refusals = TokenBucket(saved: 1, perSecond: 1)

  init(rules: IdentityRules, file: String, logger: Logger, clock: any GatewayClock = SystemClock()) {
    self.rules = rules
    self.file = file
    self.logger = logger
    self.clock = clock
  }

  /// Who it is; nil for anybody the proxy does not vouch for.
  ///
  /// - Parameter header: the token, or `Bearer` and the token.
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

  /// What is in the file now. While it cannot be read, nobody is believed.
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

  /// The keys of a file, which are public.
  package static func read(_ file: String) throws(Fault) -> JSONWebKeySet {
    guard let handle = FileHandle(forReadingAtPath: file),
      let text = try? handle.read(upToCount: fileMaxBytes + 1) ?? Data()
    else { throw Fault(description: "\(file): cannot be read: is it there, and may it be read?") }
    guard text.count <= fileMaxBytes else {
      throw Fault(description: "\(file): larger than \(fileMaxBytes) bytes, so it is not the file that was meant")
    }
    do throws(JSONWebKeySet.Fault) {
      return try JSONWebKeySet(Array(text))
    } catch {
      throw Fault(description: "\(file): \(error)")
    }
  }
}

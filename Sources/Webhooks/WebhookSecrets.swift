// The secrets that sign requests, in the form of the Standard Webhooks specification (standardwebhooks.com).

internal import Foundation
package import Runtime

/// One signing secret, or two while it is being rotated.
///
/// Each line of the file has one secret: `whsec_` and 24 to 64 bytes in base64. Each request has a signature by each of
/// them.
package struct WebhookSecrets: Sendable, Equatable {
  /// Why a file has no secrets. The text names the file, never its content.
  package enum Failure: Error, Equatable, CustomStringConvertible {
    case file(SecretFile.Failure)
    case malformed(path: String)
    case tooMany(path: String)

    package var description: String {
      switch self {
      case .file(let failure): "webhook secret file \(failure)"
      case .malformed(let path):
        "webhook secret file \(path): expected a line whsec_ followed by 24 to 64 bytes in base64: "
          + "(printf whsec_; openssl rand -base64 32) > \(path)"
      case .tooMany(let path):
        "webhook secret file \(path): has more than two secrets: the new one and the former one, each on a line"
      }
    }
  }

  private static let prefix = Array("whsec_".utf8)
  /// The lengths that the specification allows.
  private static let keyBytes = 24...64

  private let keys: [[UInt8]]

  /// Reads a file of one or two secrets.
  package static func load(
    file path: String, privacy: SecretFile.Privacy = .required
  ) throws(Failure) -> WebhookSecrets {
    let content: [UInt8]
    do { content = try SecretFile.read(path, privacy: privacy) } catch { throw .file(error) }
    let words = content.split { $0 == 0x20 || $0 == 0x0A || $0 == 0x0D || $0 == 0x09 }
    guard words.count <= 2 else { throw .tooMany(path: path) }
    let keys = words.compactMap(key)
    guard !keys.isEmpty, keys.count == words.count else { throw .malformed(path: path) }
    return WebhookSecrets(keys: keys)
  }

  private static func key(_ word: ArraySlice<UInt8>) -> [UInt8]? {
    guard word.starts(with: prefix), let key = Data(base64Encoded: Data(word.dropFirst(prefix.count))),
      keyBytes.contains(key.count)
    else { return nil }
    return Array(key)
  }

  /// The value of `webhook-signature`: for each secret `v1,` and the HMAC-SHA256 of `id.timestamp.body` in base64.
  ///
  /// - Parameter timestamp: seconds since 1970, as in `webhook-timestamp`.
  package func signature(id: String, timestamp: String, body: [UInt8]) -> String {
    let signed = Array("\(id).\(timestamp).".utf8) + body
    return keys.map { "v1," + Data(HMACSHA256.code(of: signed, key: $0)).base64EncodedString() }
      .joined(separator: " ")
  }
}

// The key that a backend sends: `Authorization: Bearer pgk_<id>_<secret>`.

internal import Runtime
internal import Settings

/// What a key may be used for.
enum APIScope: String, Sendable {
  case enqueue, device, read
}

/// A key as the client sent it, not yet verified.
struct APIKey: Equatable, Sendable {
  /// Row of `push.api_keys`.
  let id: Int32
  /// SHA-256 of the whole key.
  let hash: [UInt8]

  /// - Returns: nil if the header does not contain a key of this form.
  init?(authorization: String) {
    let scheme = "bearer "
    guard authorization.utf8.count <= 256, authorization.lowercased().hasPrefix(scheme) else { return nil }
    let key = authorization.dropFirst(scheme.count).drop { $0 == " " }
    // The secret may contain underscores.
    let parts = key.split(separator: "_", maxSplits: 2, omittingEmptySubsequences: false)
    guard parts.count == 3, parts[0] == "pgk", parts[1].utf8.allSatisfy({ 0x30...0x39 ~= $0 }),
      let id = Int32(parts[1]), id > 0, parts[2].utf8.count >= 32
    else { return nil }
    self.id = id
    hash = SHA256.digest(Array(key.utf8))
  }
}

/// A key as the database knows it.
struct KnownAPIKey: Equatable, Sendable {
  /// The values that `push.look_up_api_key` returns.
  enum State: String, Sendable {
    case good, expired, revoked
  }

  var app: String
  var scopes: Set<String>
  /// SHA-256 of the whole key.
  var hash: [UInt8]
  /// The networks that the key may be used from; nil: any; empty: none.
  var addresses: [IPRange]?
  var state = State.good

  /// Compares the hashes in constant time: the time does not depend on where they differ.
  func matches(_ key: APIKey) -> Bool {
    guard hash.count == key.hash.count else { return false }
    var difference: UInt8 = 0
    for (mine, shown) in zip(hash, key.hash) { difference |= mine ^ shown }
    return difference == 0
  }

  func mayBeUsed(from peer: IPAddress) -> Bool { addresses?.contains { $0.contains(peer) } ?? true }
}

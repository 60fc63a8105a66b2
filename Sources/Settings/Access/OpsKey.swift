// The ops keys: files with one long random word each. A file is checked for changes at each use, so that changing a key
// needs no restart.

package import Runtime

/// A key with the name that push.audit shows.
package struct OpsKey: Equatable, Sendable {
  /// Why a key file cannot be used. Does not contain the key.
  package struct Fault: Error, Equatable, CustomStringConvertible {
    package let description: String

    /// - Parameter holder: the name with the same key.
    package static func sameKey(_ file: String, as holder: String) -> Fault {
      Fault(description: "\(file): holds the same key as \(holder): give each a key of its own (openssl rand -hex 32)")
    }
  }

  package static let lengthMin = 32

  /// The operator's name.
  package let name: String
  package let file: String
  package var privacy = SecretFile.Privacy.required

  /// SHA-256 of the key.
  package func digest() throws(Fault) -> [UInt8] {
    let bytes: [UInt8]
    do {
      bytes = try SecretFile.read(file, privacy: privacy)
    } catch {
      throw Fault(description: "\(error)")
    }
    let word = Self.trimmed(bytes)
    guard word.count >= Self.lengthMin else {
      throw Fault(
        description:
          "\(file): must contain a key of at least \(Self.lengthMin) characters, for example "
          + "from openssl rand -hex 32")
    }
    return SHA256.digest(word)
  }

  /// The digest of a key as a user typed it.
  package static func digest(ofShown key: String) -> [UInt8] { SHA256.digest(trimmed(Array(key.utf8))) }

  /// Compares in constant time: the time does not depend on where the values differ.
  package static func equal(_ left: [UInt8], _ right: [UInt8]) -> Bool {
    guard left.count == right.count else { return false }
    return zip(left, right).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
  }

  private static func trimmed(_ bytes: [UInt8]) -> [UInt8] {
    let isSpace: (UInt8) -> Bool = { $0 == 0x20 || 0x09...0x0D ~= $0 }
    return Array(bytes.drop(while: isSpace).reversed().drop(while: isSpace).reversed())
  }
}

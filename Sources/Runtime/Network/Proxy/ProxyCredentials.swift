// The user and password of an HTTP proxy, from a file.

/// The credentials for a proxy: the scheme Basic of RFC 7617.
public struct ProxyCredentials: Sendable, Equatable {
  /// The value of `Proxy-Authorization`: a secret.
  let authorization: String

  /// Maximum length of the line, so that the header fits into what proxies accept.
  static let lengthMax = 2048

  /// The file has no user and password. The text names the file, never its content.
  public enum Failure: Error, Equatable, CustomStringConvertible, Sendable {
    case file(SecretFile.Failure)
    case malformed(path: String)

    public var description: String {
      switch self {
      case .file(let failure): "proxy credentials file \(failure)"
      case .malformed(let path): "proxy credentials file \(path): expected one line user:password and nothing else"
      }
    }
  }

  /// Reads `user:password`; nil for anything else. The password may have colons, the user may not.
  init?(_ text: ArraySlice<UInt8>) {
    guard let colon = text.firstIndex(of: UInt8(ascii: ":")), colon > text.startIndex, text.count <= Self.lengthMax,
      text.allSatisfy({ $0 >= 0x20 && $0 != 0x7F })
    else { return nil }
    authorization = "Basic \(Self.base64(Array(text)))"
  }

  /// Reads a file of one line `user:password`.
  public static func load(
    file path: String, privacy: SecretFile.Privacy = .required
  ) throws(Failure) -> ProxyCredentials {
    let content: [UInt8]
    do { content = try SecretFile.read(path, privacy: privacy) } catch { throw .file(error) }
    let isLineEnd: (UInt8) -> Bool = { $0 == 0x0A || $0 == 0x0D }
    var line = content[...]
    while let last = line.last, isLineEnd(last) { line.removeLast() }
    guard let credentials = ProxyCredentials(line) else { throw .malformed(path: path) }
    return credentials
  }

  /// RFC 4648 §4, with padding.
  private static func base64(_ bytes: [UInt8]) -> String {
    var text = Base64URL.encode(bytes).map { byte in
      switch byte {
      case UInt8(ascii: "-"): UInt8(ascii: "+")
      case UInt8(ascii: "_"): UInt8(ascii: "/")
      default: byte
      }
    }
    while text.count % 4 != 0 { text.append(UInt8(ascii: "=")) }
    return String(decoding: text, as: UTF8.self)
  }
}

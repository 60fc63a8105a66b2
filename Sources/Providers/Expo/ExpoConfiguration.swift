// Where Expo's push service is and how we come in.

public import Runtime

/// An Expo project as the gateway sends to it.
public struct ExpoConfiguration: Sendable {
  /// Scheme and host, without a slash at the end; `https://exp.host`.
  public var url: String
  /// Sent as `Authorization: Bearer …` where the project demands it.
  public var accessToken: String?
  /// A PEM file of CA certificates believed besides the system's.
  public var caFile: String?
  /// Expo takes at most this many messages in a request…
  public var messagesMax = 100
  /// …and at most this many requests at a time. (Expo documentation, "Send notifications with the Expo Push Service")
  public var requestsMax = 6
  /// Receipts of at most this many tickets may be asked for at a time. (The same page, "Push receipts")
  public var receiptsMax = 1_000
  public var requestTimeout = Nanoseconds.seconds(10)
  /// How much longer than a message's deadline its ticket is waited for: it may say that the deadline was missed.
  public var lateAnswerTimeout = Nanoseconds.seconds(5)
  /// Bytes of an answer, decompressed, that are read at most: a thousand receipts that all tell of an error at length.
  public var answerBytesMax = 4 << 20
  /// The waits between tries to connect: short, for nothing else finds out that Expo is back.
  public var backoff = ReconnectBackoff(max: .seconds(2))
  /// How libcurl treats connections; certificates, counts, sizes and the time-out are those of this configuration.
  public var connections = CurlConfiguration()

  public init(url: String = "https://exp.host", accessToken: String? = nil, caFile: String? = nil) {
    self.url = url.last == "/" ? String(url.dropLast()) : url
    self.accessToken = accessToken
    self.caFile = caFile
  }

  /// An access token's file that holds none.
  public enum AccessTokenError: Error, Equatable, CustomStringConvertible, Sendable {
    case file(SecretFile.Failure)
    /// Empty, or more than one line, or with blanks in it.
    case malformed(path: String)

    public var description: String {
      switch self {
      case .file(let failure): "Expo access token file \(failure)"
      case .malformed(let path): "Expo access token file \(path): expected one line with the token and nothing else"
      }
    }
  }

  /// Reads an access token: one line, blanks around it ignored.
  public static func readAccessToken(
    file path: String, privacy: SecretFile.Privacy = .required
  ) throws(AccessTokenError) -> String {
    let content: [UInt8]
    do { content = try SecretFile.read(path, privacy: privacy) } catch { throw .file(error) }
    let words = content.split { $0 == 0x20 || $0 == 0x0A || $0 == 0x0D || $0 == 0x09 }
    guard words.count == 1, words[0].allSatisfy({ 0x21...0x7E ~= $0 }) else { throw .malformed(path: path) }
    return String(decoding: words[0], as: UTF8.self)
  }
}

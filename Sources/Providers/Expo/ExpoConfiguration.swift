// The settings of an Expo project: URL, access token, limits, connections.

public import Runtime

/// The settings with which the gateway sends to one Expo project.
public struct ExpoConfiguration: Sendable {
  /// Scheme and host, without a slash at the end; `https://exp.host`.
  public var url: String
  /// The access token, sent as `Authorization: Bearer …`. Nil if the project does not require one.
  public var accessToken: String?
  /// A PEM file of CA certificates trusted in addition to the system's.
  public var caFile: String?
  /// Maximum number of messages in a request. (Expo documentation, "Send notifications with the Expo Push Service")
  public var messagesMax = 100
  /// Maximum number of concurrent requests. (The same page)
  public var requestsMax = 6
  /// Maximum number of tickets in a request for receipts. (The same page, "Push receipts")
  public var receiptsMax = 1_000
  public var requestTimeout = Nanoseconds.seconds(10)
  /// After this time without an answer, at least, one of a request's messages is suspected to make it hang; if Expo's recent answers took
  /// longer than half of this, twice their time. It is suspected earlier if the owner of a message gives up on it.
  public var answerTimeout = Nanoseconds.seconds(2)
  /// How long a request takes one of the places of `requestsMax`, unless it is answered before. Expo may be slow, and other messages must not
  /// wait for its answer.
  public var placeTime = Nanoseconds.seconds(1)
  /// How long a message waits in the outbox whose token is a suspect (`ExpoSuspects`) and has a request already.
  public var suspectWait = Nanoseconds.seconds(5)
  /// How long after a message's deadline its ticket is still accepted. The ticket may say that the deadline was missed.
  public var lateAnswerTimeout = Nanoseconds.seconds(5)
  /// Maximum size of an answer in bytes, decompressed. Enough for 1000 receipts that each contain a long error.
  public var answerBytesMax = 4 << 20
  /// The waits between attempts to connect. They are short because nothing else shows that Expo is reachable again.
  public var backoff = ReconnectBackoff(max: .seconds(2))
  /// The settings of libcurl. CA file, number of connections, answer size and timeout are taken from this configuration instead.
  public var connections = CurlConfiguration()

  public init(url: String = "https://exp.host", accessToken: String? = nil, caFile: String? = nil) {
    self.url = url.last == "/" ? String(url.dropLast()) : url
    self.accessToken = accessToken
    self.caFile = caFile
  }

  /// Why an access token file cannot be used.
  public enum AccessTokenError: Error, Equatable, CustomStringConvertible, Sendable {
    case file(SecretFile.Failure)
    /// The file is empty, has more than one line, or has blanks in the token.
    case malformed(path: String)

    public var description: String {
      switch self {
      case .file(let failure): "Expo access token file \(failure)"
      case .malformed(let path): "Expo access token file \(path): expected one line with the token and nothing else"
      }
    }
  }

  /// Reads an access token: one line. Blanks around it are ignored.
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

// The origins to which pushes are sent. The endpoint of a subscription comes from a browser, so anyone who can register a device
// chooses it. Without this list, the gateway would send requests to any host that it can reach.

/// A list of origins. An endpoint of another origin is refused without any request.
public struct WebPushAllowedOrigins: Sendable, Equatable {
  /// Why a pattern cannot be used.
  public struct Fault: Error, Equatable, CustomStringConvertible, Sendable {
    public let description: String
  }

  /// One pattern.
  struct Pattern: Sendable, Equatable {
    let origin: WebPushOrigin
    /// Whether the pattern stands for all hosts below this one, and not for the host itself.
    let isWildcard: Bool

    func matches(_ other: WebPushOrigin) -> Bool {
      guard other.port == origin.port else { return false }
      guard isWildcard else { return other.host == origin.host }
      return other.host.utf8.count > origin.host.utf8.count + 1 && other.host.hasSuffix(".\(origin.host)")
    }
  }

  /// Maximum number of patterns.
  public static let patternsMax = 64

  /// The push services of the browsers: Chrome and other browsers on Android (FCM), Firefox (Mozilla), Safari (Apple), Edge on
  /// Windows (WNS). Chromium, and Chrome's channels other than stable, use another host of FCM, `jmt17.google.com` (Chromium,
  /// components/push_messaging/push_messaging_utils.cc, GetGcmEndpointForChannel).
  public static let browserPatterns = [
    "fcm.googleapis.com", "jmt17.google.com", "updates.push.services.mozilla.com", "*.push.services.mozilla.com",
    "web.push.apple.com", "*.push.apple.com", "*.notify.windows.com",
  ]

  /// The origins of `browserPatterns`.
  public static let browsers: WebPushAllowedOrigins = {
    guard let origins = try? WebPushAllowedOrigins(browserPatterns) else {
      preconditionFailure("a pattern of a browser's push service is malformed")
    }
    return origins
  }()

  /// The patterns as they were given.
  public let patterns: [String]
  /// The same, read.
  let origins: [Pattern]

  /// - Parameter patterns: each is a host name, or `*.` and a domain for all hosts below it. A port may follow after a colon;
  ///   without one it is 443. `https://` may precede.
  /// - Throws: `Fault`, which names the pattern.
  public init(_ patterns: [String]) throws(Fault) {
    guard !patterns.isEmpty else { throw Fault(description: "must name at least one origin") }
    guard patterns.count <= Self.patternsMax else {
      throw Fault(description: "has more than \(Self.patternsMax) origins")
    }
    self.patterns = patterns
    var parsed: [Pattern] = []
    for pattern in patterns { parsed.append(try Self.parse(pattern)) }
    self.origins = parsed
  }

  public func allows(_ origin: WebPushOrigin) -> Bool { origins.contains { $0.matches(origin) } }

  public static func == (left: Self, right: Self) -> Bool { left.origins == right.origins }

  private static func parse(_ pattern: String) throws(Fault) -> Pattern {
    let scheme = "https://"
    var text = pattern.hasPrefix(scheme) ? pattern.dropFirst(scheme.count) : pattern[...]
    let isWildcard = text.hasPrefix("*.")
    if isWildcard { text = text.dropFirst(2) }
    guard let origin = WebPushOrigin(authority: Array(text.utf8)[...]) else {
      throw Fault(
        description: "\(pattern): must be a host name, or *. and a domain, with an optional port: push.example.com, "
          + "*.push.example.com, push.example.com:8443")
    }
    guard !isWildcard || origin.host.contains(".") else {
      throw Fault(description: "\(pattern): would allow a whole top-level domain; name the domain of the push service")
    }
    return Pattern(origin: origin, isWildcard: isWildcard)
  }
}

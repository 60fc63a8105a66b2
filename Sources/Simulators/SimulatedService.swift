// The interface between HTTP/2 and a provider's rules: takes a request, returns a response, and records it in the
// journal.

public import Runtime

/// The provider that a simulator imitates.
public enum SimulatedProvider: String, Sendable, CaseIterable {
  case apns, fcm, oauth, expo, webpush
}

/// One request, complete.
public struct SimulatedRequest: Sendable {
  public var headers: HTTP2HeaderBlock
  public var body: [UInt8]
  /// The number of the connection on this listener, and the stream's id there.
  public var connection = 0
  public var stream: Int32 = 0

  public init(headers: HTTP2HeaderBlock, body: [UInt8]) {
    self.headers = headers
    self.body = body
  }

  var method: ArraySlice<UInt8> { headers[":method"] ?? [] }
  /// The path without its query.
  var path: ArraySlice<UInt8> { (headers[":path"] ?? []).prefix { $0 != UInt8(ascii: "?") } }
  func hasContentType(_ type: StaticString) -> Bool {
    headers["content-type"]?.hasPrefixIgnoringCase(type) ?? false
  }
}

/// What a provider stores about one connection.
public struct ConnectionMemory: Sendable {
  /// The key id of the first provider token seen on the connection (APNs allows one key for each connection).
  var providerKeyID: [UInt8]?
  /// An expired provider token was used. APNs then refuses all requests until the connection is replaced.
  var hasExpired = false

  public init() {}
}

/// A simulator's response to one request.
public struct SimulatedAnswer: Sendable, Equatable {
  /// Whether and how the answer reaches the client.
  public enum Delivery: Sendable, Equatable {
    case answer
    /// Nothing is ever sent on this stream.
    case never
    /// Nothing is sent on this stream or on any later one of its connection.
    case deafen
    /// RST_STREAM with INTERNAL_ERROR: the request may have been processed.
    case reset
    /// RST_STREAM with REFUSED_STREAM: the request was certainly not processed.
    case refuse
    /// GOAWAY with an earlier stream as its last: this request and those after it were certainly not processed.
    case cutOff
    /// The TCP connection is closed without a GOAWAY.
    case close
  }

  public var status: Int
  public var contentType: ContentType
  /// The `apns-id` to send back.
  public var apnsID: [UInt8]
  /// Web push: the URL of the accepted push, sent as `location`.
  public var location: [UInt8] = []
  /// Web push: the `x-wns-status` to send.
  public var wnsStatus: [UInt8] = []
  /// Seconds for a Retry-After header; nil for none.
  public var retryAfter: Int?
  public var body: [UInt8]
  public var delivery: Delivery = .answer
  /// The delay of the answer.
  public var delay: Nanoseconds = .zero
  /// A GOAWAY frame, with this reason as its debug data, is sent just before the answer. Open streams are still
  /// answered.
  public var goAwayReason: String?
  /// The client's credentials were accepted: it may now open more streams.
  public var isAuthorised = false

  public init(
    status: Int, contentType: ContentType = .none, apnsID: [UInt8] = [], retryAfter: Int? = nil, body: [UInt8] = []
  ) {
    self.status = status
    self.contentType = contentType
    self.apnsID = apnsID
    self.retryAfter = retryAfter
    self.body = body
  }
}

/// The content types the providers answer with.
public enum ContentType: String, Sendable {
  case none = ""
  case json = "application/json; charset=UTF-8"
  case html = "text/html; charset=UTF-8"
}

/// A provider's rules as a pure function of the request and the time.
public protocol SimulatedService: Sendable {
  /// Checks a request as strictly as the provider, and more strictly where docs/protocols.md says “never”. Returns the
  /// provider's answer.
  ///
  /// - Parameters:
  ///   - connection: the state of the request's connection.
  ///   - now: microseconds since 1970.
  ///   - journal: records every push, accepted or refused.
  mutating func respond(
    to request: SimulatedRequest, on connection: inout ConnectionMemory, at now: Int64, journal: inout SimulatorJournal
  ) -> SimulatedAnswer

  /// Replaces the fault plan for requests from now on.
  mutating func setFaults(_ plan: FaultPlan)
}

// The request and answer format of web push (RFC 8030), for `HTTP2Sender`. Each origin has a sender of its own.

internal import Runtime

/// Requests to one origin. Their `token` is the path of the endpoint, and their `body` is encrypted.
struct WebPushFormat: HTTP2PushFormat {
  /// RFC 8292 §3. The token contains the JWT and the parameter `k`.
  var authorizationScheme: StaticString { "vapid t=" }
  /// Never used: `WebPushProvider` renews a refused token.
  var tokenRefusedReason: String { "HTTP401" }
  var resendsMax: Int { 1 }
  var madeUpToken: String? { nil }

  /// Maximum time to live that FCM accepts, in seconds: four weeks.
  static let timeToLiveMax: Int64 = 2_419_200

  let endpoints: [HTTP2Endpoint]
  private let isWNS: Bool
  /// The shared fields by `Urgency` (RFC 8030 §5.3): high, normal, low.
  private let shared: [HTTP2SharedFields]
  private let timeToLive = HTTP2FieldName("ttl")
  private let topic = HTTP2FieldName("topic")
  private let cachePolicy = HTTP2FieldName("x-wns-cache-policy")

  init(_ endpoint: HTTP2Endpoint, _ origin: WebPushOrigin) {
    endpoints = [endpoint]
    isWNS = origin.isWNS
    shared = ["high", "normal", "low"].map { urgency in
      [
        ":method": "POST", ":scheme": "https", ":authority": endpoint.authority,
        "content-type": "application/octet-stream", "content-encoding": "aes128gcm", "urgency": urgency,
      ]
    }
  }

  func endpoint(of request: PushRequest) -> Int { 0 }

  /// Always nil: `WebPushProvider` has checked the request before it was encrypted.
  func objection(to request: PushRequest) -> String? { nil }

  func write(
    _ request: PushRequest, authorization: [UInt8], loop: EventLoop, into head: inout HTTP2RequestHead
  ) -> [UInt8] {
    head.begin(with: shared[Int(request.manner.priority.rawValue)])
    head.add(.path, request.token)
    head.add(.authorization, authorization)
    let secondsLeft = (request.deadline - loop.now).count / 1_000_000_000
    let seconds = min(request.manner.timeToLive(secondsLeft: secondsLeft), Self.timeToLiveMax)
    head.add(timeToLive, String(seconds))
    // Without this field, WNS refuses a time to live of zero: "Ttl value conflicts with X-WNS-Cache-Policy".
    if isWNS { head.add(cachePolicy, seconds == 0 ? "no-cache" : "cache") }
    if let collapseID = request.collapseID, !collapseID.isEmpty { head.add(topic, Self.topic(of: collapseID)) }
    return request.body
  }

  func read(
    _ response: borrowing HTTP2Message, clock: any GatewayClock
  ) -> (AnswerDisposition, HTTP2ConnectionPool.ExchangeEffect.Connection) {
    let outcome = WebPushReasonTable.read(response, wallMilliseconds: clock.wallMilliseconds())
    switch outcome {
    case .unauthorized, .unavailable: return (.settle(outcome), .unproven)
    default: return (.settle(outcome), .proven)
    }
  }

  /// The topic of a collapse ID: 24 bytes of its SHA-256 in base64url, which are 32 characters. RFC 8030 §5.4 allows at most 32
  /// characters of that alphabet. Apple also refuses a topic that base64url cannot decode. The push service learns no ID of a call.
  static func topic(of collapseID: ArraySlice<UInt8>) -> [UInt8] {
    Base64URL.encode(Array(SHA256.digest(Array(collapseID)).prefix(24)))
  }
}

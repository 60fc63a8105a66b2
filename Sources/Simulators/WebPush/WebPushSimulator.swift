// A push service as a pure function of request and time.

internal import Runtime

/// A strict stand-in for a browser's push service (RFC 8030), with the errors of Mozilla, Apple, WNS and FCM. It decrypts every
/// message with the browser's key, so that tests and the log show what the browser receives.
///
/// An endpoint is `https://HOST:PORT/push/NAME`. A NAME that begins with `fault-REASON` gets that fault: a reason of
/// `WebPushError.all` or of `Fault.names`.
public struct WebPushSimulator: SimulatedService {
  public struct Configuration: Sendable {
    /// The origin of the endpoints: claim `aud`.
    public var origin: String
    /// The keys of the subscriptions.
    public var browser: WebPushBrowser
    /// The VAPID public key with which the subscriptions were made: 65 bytes.
    public var applicationServerKey: [UInt8]

    public init(origin: String, browser: WebPushBrowser, applicationServerKey: [UInt8]) {
      self.origin = origin
      self.browser = browser
      self.applicationServerKey = applicationServerKey
    }
  }

  /// Maximum size of a body (RFC 8030 §7.2).
  static let bodyBytesMax = 4_096
  private static let pathPrefix: StaticString = "/push/"
  /// Number of remembered salts and keys of accepted messages.
  private static let rememberedMax = 4_096

  private let configuration: Configuration
  private let origin: [UInt8]
  private var tokens: VAPIDVerifier
  private var faults: FaultEngine
  private var serial: UInt64 = 0
  /// Salt and public key of accepted messages.
  private var seen: Set<[UInt8]> = []

  public init(_ configuration: Configuration, faults: FaultPlan = FaultPlan()) {
    self.configuration = configuration
    origin = Array(configuration.origin.utf8)
    tokens = VAPIDVerifier(audience: configuration.origin, publicKey: configuration.applicationServerKey)
    self.faults = FaultEngine(faults, for: .webpush)
  }

  public mutating func setFaults(_ plan: FaultPlan) {
    faults = FaultEngine(plan, for: .webpush)
  }

  public mutating func respond(
    to request: SimulatedRequest, on connection: inout ConnectionMemory, at now: Int64, journal: inout SimulatorJournal
  ) -> SimulatedAnswer {
    let name: ArraySlice<UInt8>
    let headers: Headers
    let payload: [UInt8]
    do throws(WebPushError) {
      name = try subscriptionName(request)
      try authorise(request, at: now / 1_000_000)
      headers = try check(request)
      payload = try decrypt(request.body)
    } catch {
      journal.refuse(.webpush, status: error.status, reason: error.reason, detail: error.detail, at: now)
      return error.answer
    }
    serial += 1
    var id: [UInt8] = []
    id.appendHex(serial, digits: 16)
    var answer = SimulatedAnswer(status: 201)
    answer.location = origin + Array("/message/".utf8) + id
    if let fault = faults.fault(for: name) ?? Self.fault(in: name) {
      answer = Self.apply(fault, to: answer)
      guard answer.status == 201 else {
        journal.refuse(.webpush, status: answer.status, reason: fault.countedReason, detail: "fault", at: now)
        return answer
      }
    }
    var push = push(name, id, headers, payload, at: now)
    if isRepeated(request.body) { push.violation = .encryptionIsRepeated }
    journal.accept(push)
    return answer
  }

  // MARK: - Checks

  /// The header fields of a valid request.
  private struct Headers {
    var timeToLive: ArraySlice<UInt8> = []
    var urgency: ArraySlice<UInt8> = []
    var topic: ArraySlice<UInt8>?
  }

  private func subscriptionName(_ request: SimulatedRequest) throws(WebPushError) -> ArraySlice<UInt8> {
    guard request.method.equals("POST") else { throw WebPushError(status: 405, reason: "HTTP405") }
    let path = request.path
    let name = path.dropFirst(Self.pathPrefix.utf8CodeUnitCount)
    guard path.hasPrefix(Self.pathPrefix), !name.isEmpty, name.allSatisfy(Self.isNameByte) else {
      throw WebPushError(status: 404, reason: "errno_102", detail: "no endpoint of this service")
    }
    return name
  }

  private mutating func authorise(_ request: SimulatedRequest, at now: Int64) throws(WebPushError) {
    guard let authorization = request.headers["authorization"] else {
      throw WebPushError(status: 401, reason: "errno_109", detail: "authorization is missing")
    }
    do throws(VAPIDVerifier.Flaw) {
      try tokens.verify(authorization, at: now)
    } catch {
      throw WebPushError(status: 401, reason: "errno_109", detail: error.text)
    }
  }

  private func check(_ request: SimulatedRequest) throws(WebPushError) -> Headers {
    var headers = Headers()
    guard let timeToLive = request.headers["ttl"] else {
      throw WebPushError(status: 400, reason: "errno_111", detail: "TTL is missing")
    }
    guard timeToLive.decimal != nil else {
      throw WebPushError(status: 400, reason: "errno_112", detail: "TTL is not a number of seconds")
    }
    headers.timeToLive = timeToLive
    guard let urgency = request.headers["urgency"],
      urgency.equals("high") || urgency.equals("normal") || urgency.equals("low") || urgency.equals("very-low")
    else {
      // Push services treat a push without urgency as normal: a browser on a phone that sleeps would not ring.
      throw WebPushError(status: 400, reason: "BadUrgency", detail: "Urgency is missing or unknown")
    }
    headers.urgency = urgency
    if let topic = request.headers["topic"] {
      guard (1...32).contains(topic.count), Base64URL.decode(topic) != nil else {
        throw WebPushError(status: 400, reason: "errno_113", detail: "Topic is not base64url of at most 32 characters")
      }
      headers.topic = topic
    }
    guard request.headers["content-encoding"]?.equals("aes128gcm") == true else {
      throw WebPushError(status: 400, reason: "errno_110", detail: "Content-Encoding is not aes128gcm")
    }
    guard request.headers["encryption"] == nil, request.headers["crypto-key"] == nil else {
      throw WebPushError(status: 400, reason: "errno_110", detail: "a header of an older draft")
    }
    return headers
  }

  /// Real push services cannot read messages. A browser drops a message that it cannot decrypt, and tells nobody.
  private func decrypt(_ body: [UInt8]) throws(WebPushError) -> [UInt8] {
    guard body.count <= Self.bodyBytesMax else { throw WebPushError(status: 413, reason: "errno_104") }
    guard let payload = configuration.browser.decrypt(body) else {
      throw WebPushError(status: 400, reason: "errno_110", detail: "the browser cannot decrypt the message")
    }
    guard let json = try? JSONScanner(payload), json.root.kind == .object else {
      throw WebPushError(status: 400, reason: "errno_110", detail: "the content is no JSON object")
    }
    return payload
  }

  /// Whether the salt or the key of a message was used before. Each message needs its own (RFC 8188 §2.1, RFC 8291 §3.1).
  private mutating func isRepeated(_ body: [UInt8]) -> Bool {
    if seen.count >= Self.rememberedMax { seen.removeAll() }
    let isNewSalt = seen.insert(Array(body[..<16])).inserted
    let isNewKey = seen.insert(Array(body[21..<86])).inserted
    return !isNewSalt || !isNewKey
  }

  private static func isNameByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."),
      UInt8(ascii: ":"):
      true
    default: false
    }
  }

  // MARK: - Answers

  private static func fault(in name: ArraySlice<UInt8>) -> Fault? {
    TokenFault.fault(in: name) { reason in WebPushError.named(reason) == nil ? nil : .reason(reason) }
  }

  private static func apply(_ fault: Fault, to accepted: SimulatedAnswer) -> SimulatedAnswer {
    if let answer = fault.commonAnswer { return answer }
    var answer = accepted
    if case .answer(let status, let reason, let body) = fault.effect {
      answer = (WebPushError.named(reason) ?? WebPushError(status: status ?? 400, reason: reason)).answer
      answer.status = status ?? answer.status
      if let body { answer.body = Array(body.utf8) }
    }
    return fault.finish(answer)
  }

  private func push(
    _ name: ArraySlice<UInt8>, _ id: [UInt8], _ headers: Headers, _ payload: [UInt8], at now: Int64
  ) -> AcceptedPush {
    var details: [(name: StaticString, value: ArraySlice<UInt8>)] = [("ttl", headers.timeToLive)]
    if let topic = headers.topic { details.append(("topic", topic)) }
    return AcceptedPush(
      provider: .webpush, at: now, environment: "", tokenBytes: name, idBytes: id[...], kindBytes: headers.urgency,
      topicBytes: origin[...], details: details, payloadBytes: payload[...])
  }
}

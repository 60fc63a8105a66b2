// APNs as a pure function of request and time: it checks every request and answers as Apple does.
//
// Order of the checks: method and path, the provider token, each header, the payload, the device token, then the
// faults. An invalid request gets the error for its own defect; only a valid request meets a fault.

public import Runtime

/// A strict stand-in for `api.push.apple.com` or `api.sandbox.push.apple.com`.
public struct APNsSimulator: SimulatedService {
  /// Tokens with this prefix belong to the sandbox; the production listener answers BadDeviceToken.
  public static let sandboxTokenPrefix: StaticString = "5a4db0"
  /// Tokens with this prefix belong to production; the sandbox listener answers BadDeviceToken.
  public static let productionTokenPrefix: StaticString = "960d00"
  /// Maximum size of a payload in bytes (Apple, “Sending notification requests to APNs”).
  public static let voipPayloadMax = 5_120
  public static let payloadMax = 4_096
  public static let collapseIDMax = 64

  public enum Environment: String, Sendable, CaseIterable {
    case production, sandbox
  }

  public struct Configuration: Sendable {
    public var environment: Environment
    /// Public keys (ES256) by key id.
    public var keys: [String: VerifyingKey]
    public var teamIDs: [String]
    /// Bundle ids, without `.voip`.
    public var topics: [String]
    /// Minimum number of seconds between two new provider tokens of a key (Apple: 20 minutes); nil disables the check.
    public var tokenUpdateInterval: Int64?
    /// The only environment that the keys are made for; nil: both.
    public var keyEnvironment: Environment?

    public init(
      environment: Environment, keys: [String: VerifyingKey], teamIDs: [String], topics: [String],
      tokenUpdateInterval: Int64? = nil
    ) {
      self.environment = environment
      self.keys = keys
      self.teamIDs = teamIDs
      self.topics = topics
      self.tokenUpdateInterval = tokenUpdateInterval
    }
  }

  private let environment: Environment
  private let topics: [[UInt8]]
  private let acceptsKeys: Bool
  private var tokens: ProviderTokenVerifier
  private var faults: FaultEngine
  private var serial: UInt64 = 0

  public init(_ configuration: Configuration, faults: FaultPlan = FaultPlan()) {
    environment = configuration.environment
    topics = configuration.topics.map { Array($0.utf8) }
    acceptsKeys = configuration.keyEnvironment.map { $0 == configuration.environment } ?? true
    tokens = ProviderTokenVerifier(
      keys: configuration.keys, teamIDs: configuration.teamIDs, updateInterval: configuration.tokenUpdateInterval)
    self.faults = FaultEngine(faults, for: .apns, environment: configuration.environment.rawValue)
  }

  public mutating func setFaults(_ plan: FaultPlan) {
    faults = FaultEngine(plan, for: .apns, environment: environment.rawValue)
  }

  public mutating func respond(
    to request: SimulatedRequest, on connection: inout ConnectionMemory, at now: Int64, journal: inout SimulatorJournal
  ) -> SimulatedAnswer {
    let headers = APNsHeaders(request.headers)
    var isAuthorised = false
    let token: ArraySlice<UInt8>
    do throws(Refusal) {
      token = try deviceToken(headers)
      try authorise(headers, &connection, now: now / 1_000_000)
      isAuthorised = true
      try check(headers)
      try check(request.body, isVoIP: headers.isVoIP)
      try check(deviceToken: token)
    } catch {
      journal.refuse(.apns, status: error.reason.status, reason: error.reason.rawValue, detail: error.detail, at: now)
      var answer = refusal(error.reason, headers, now)
      answer.isAuthorised = isAuthorised
      return answer
    }
    var answer = SimulatedAnswer(status: 200, apnsID: messageID(headers))
    if let fault = faults.fault(for: token) ?? APNsTokenFault.fault(in: token) {
      answer = apply(fault, to: answer, headers, now)
      guard answer.status == 200 else {
        journal.refuse(.apns, status: answer.status, reason: fault.countedReason, detail: "fault", at: now)
        answer.isAuthorised = true
        return answer
      }
    }
    answer.isAuthorised = true
    journal.accept(push(headers, token, keyID: connection.providerKeyID, id: answer.apnsID, request.body, at: now))
    return answer
  }

  // MARK: - Checks

  /// Why a request is refused.
  private struct Refusal: Error {
    let reason: APNsReason
    let detail: String
    init(_ reason: APNsReason, _ detail: String = "") {
      self.reason = reason
      self.detail = detail
    }
  }

  private func deviceToken(_ headers: APNsHeaders) throws(Refusal) -> ArraySlice<UInt8> {
    guard headers.method.equals("POST") else { throw Refusal(.methodNotAllowed) }
    let path = headers.path
    let prefix: StaticString = "/3/device/"
    guard path.hasPrefix(prefix) else {
      throw path.equals("/3/device") ? Refusal(.missingDeviceToken) : Refusal(.badPath)
    }
    let token = path.dropFirst(prefix.utf8CodeUnitCount)
    guard !token.isEmpty else { throw Refusal(.missingDeviceToken) }
    guard !token.contains(UInt8(ascii: "/")) else { throw Refusal(.badPath) }
    return token
  }

  private mutating func authorise(
    _ headers: APNsHeaders, _ connection: inout ConnectionMemory, now: Int64
  ) throws(Refusal) {
    if headers.hasDuplicates { throw Refusal(.duplicateHeaders) }
    guard let authorization = headers.authorization else { throw Refusal(.missingProviderToken) }
    if connection.hasExpired { throw Refusal(.expiredProviderToken, "this connection used an expired token before") }
    switch tokens.verify(authorization, at: now) {
    case .refused(let reason, let detail):
      if reason == .expiredProviderToken { connection.hasExpired = true }
      throw Refusal(reason, detail)
    case .valid(let keyID):
      if connection.providerKeyID == nil { connection.providerKeyID = keyID }
      guard connection.providerKeyID == keyID else {
        throw Refusal(.unrelatedKeyIdInToken, "the connection began with another key")
      }
      guard acceptsKeys else { throw Refusal(.badEnvironmentKeyIdInToken, "the key is for the other environment") }
    }
  }

  private func check(_ headers: APNsHeaders) throws(Refusal) {
    if let id = headers.id, !id.isUUID { throw Refusal(.badMessageId, "apns-id is no UUID") }
    guard let type = headers.pushType else { throw Refusal(.invalidPushType, "apns-push-type is missing") }
    let isBackground = type.equals("background")
    guard headers.isVoIP || isBackground || type.equals("alert") else {
      throw Refusal(.invalidPushType, "apns-push-type is not voip, alert or background")
    }
    guard let expiration = headers.expiration else {
      throw Refusal(.badExpirationDate, "apns-expiration is missing: APNs would store the push up to 30 days")
    }
    guard expiration.decimal != nil else { throw Refusal(.badExpirationDate, "apns-expiration is no number") }
    guard let priority = headers.priority?.decimal else {
      throw Refusal(.badPriority, "apns-priority is missing or no number")
    }
    guard isBackground ? priority == 5 || priority == 1 : priority == 10 else {
      throw Refusal(.badPriority, "apns-priority must be 10 for voip and alert, 5 or 1 for background")
    }
    if let collapseID = headers.collapseID, collapseID.count > Self.collapseIDMax { throw Refusal(.badCollapseId) }
    try check(topic: headers.topic, isVoIP: headers.isVoIP)
  }

  private func check(topic: ArraySlice<UInt8>?, isVoIP: Bool) throws(Refusal) {
    guard let topic, !topic.isEmpty else { throw Refusal(.missingTopic) }
    let suffix = [UInt8](".voip")
    let hasSuffix = topic.suffix(suffix.count).elementsEqual(suffix)
    guard hasSuffix == isVoIP else {
      throw Refusal(.badTopic, isVoIP ? "a voip topic ends in .voip" : "only a voip topic ends in .voip")
    }
    let bundleID = isVoIP ? topic.dropLast(suffix.count) : topic
    guard topics.contains(where: { $0[...] == bundleID }) else { throw Refusal(.topicDisallowed) }
  }

  private func check(_ body: [UInt8], isVoIP: Bool) throws(Refusal) {
    guard !body.isEmpty else { throw Refusal(.payloadEmpty) }
    guard body.count <= (isVoIP ? Self.voipPayloadMax : Self.payloadMax) else { throw Refusal(.payloadTooLarge) }
    guard let json = try? JSONScanner(body), json.root.kind == .object else {
      throw Refusal(.payloadEmpty, "the payload is no JSON object")
    }
  }

  private func check(deviceToken token: ArraySlice<UInt8>) throws(Refusal) {
    guard token.count >= 64, token.count <= 200, token.count.isMultiple(of: 2), token.allSatisfy(\.isHexDigit) else {
      throw Refusal(.badDeviceToken, "not 64 to 200 hexadecimal digits")
    }
    guard !token.allSatisfy({ $0 == UInt8(ascii: "0") }) else { throw Refusal(.badDeviceToken, "nobody's token") }
    let stranger = environment == .production ? Self.sandboxTokenPrefix : Self.productionTokenPrefix
    if token.hasPrefixIgnoringCase(stranger) { throw Refusal(.badDeviceToken, "the token of another environment") }
  }

  // MARK: - Answers

  private func refusal(_ reason: APNsReason, _ headers: APNsHeaders, _ now: Int64) -> SimulatedAnswer {
    let id = headers.id.flatMap { $0.isUUID ? Array($0) : nil } ?? []
    return SimulatedAnswer(
      status: reason.status, apnsID: id, body: Self.body(reason.rawValue, status: reason.status, timestamp: now / 1_000)
    )
  }

  private func apply(_ fault: Fault, to accepted: SimulatedAnswer, _ headers: APNsHeaders, _ now: Int64)
    -> SimulatedAnswer
  {
    if let answer = fault.commonAnswer { return answer }
    var answer = accepted
    if case .answer(let status, let reason, let body) = fault.effect {
      answer.status = status ?? APNsReason(rawValue: reason)?.status ?? 400
      if let body {
        answer.body = Array(body.utf8)
      } else if answer.status != 200 {
        answer.body = Self.body(reason, status: answer.status, timestamp: fault.timestamp ?? now / 1_000)
      }
    }
    return fault.finish(answer, goAwayReason: #"{"reason":"Shutdown"}"#)
  }

  private static func body(_ reason: String, status: Int, timestamp: Int64) -> [UInt8] {
    var writer = JSONWriter(reservingCapacity: 64)
    writer.beginObject()
    writer.key("reason")
    writer.string(reason)
    if status == 410 {
      writer.key("timestamp")
      writer.integer(timestamp)
    }
    writer.endObject()
    return writer.bytes
  }

  /// The request's apns-id, or a new one, as Apple creates it.
  private mutating func messageID(_ headers: APNsHeaders) -> [UInt8] {
    if let id = headers.id { return Array(id) }
    serial += 1
    var id: [UInt8] = []
    id.reserveCapacity(36)
    id.appendUUID(high: 0x4000, low: 0x8000_0000_0000_0000 | serial)
    return id
  }

  private func push(
    _ headers: APNsHeaders, _ token: ArraySlice<UInt8>, keyID: [UInt8]?, id: [UInt8], _ body: [UInt8], at now: Int64
  ) -> AcceptedPush {
    var details: [(name: StaticString, value: ArraySlice<UInt8>)] = []
    details.reserveCapacity(4)
    if let keyID { details.append(("kid", keyID[...])) }
    if let value = headers.priority { details.append(("apns-priority", value)) }
    if let value = headers.expiration { details.append(("apns-expiration", value)) }
    if let value = headers.collapseID { details.append(("apns-collapse-id", value)) }
    var push = AcceptedPush(
      provider: .apns, at: now, environment: environment.rawValue, tokenBytes: token, idBytes: id[...],
      kindBytes: headers.pushType ?? [], topicBytes: headers.topic ?? [], details: details, payloadBytes: body[...])
    if headers.isVoIP, Self.isNoInvite(body) { push.violation = .voipPushIsNoInvite }
    return push
  }

  /// Whether a payload is a cancel or a missed call, except in the format by which Telnyx's SDK 4 recognizes one.
  private static func isNoInvite(_ body: [UInt8]) -> Bool {
    // Nearly every payload contains neither word, and a search for words is much faster than parsing JSON.
    guard body.holds("call_cancelled") || body.holds("missed_call") else { return false }
    let json = JSONScanner(trusting: body)
    let alert = json.member("aps").flatMap { json.member("alert", of: $0) }
    if alert.flatMap(json.contents)?.equals("Missed call!") == true { return false }
    return json.member("action").flatMap(json.contents)?.equals("call_cancelled") == true
      || json.member("type").flatMap(json.contents)?.equals("missed_call") == true
  }
}

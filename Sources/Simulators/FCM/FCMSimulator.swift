// FCM HTTP v1 and its token endpoint as a pure function of request and time.

internal import Runtime

/// A strict stand-in for `fcm.googleapis.com`, with the OAuth token endpoint at `/token`.
///
/// A token that begins with `fault-NAME` gets that fault. NAME is one of `FCMError.names` or of `Fault.names`.
public struct FCMSimulator: SimulatedService {
  public struct Configuration: Sendable {
    public var project: String
    public var oauth: OAuthSimulator.Configuration
    /// Refuse calls with a notification block. Google accepts them, and a template with `headless: false` contains one
    /// on purpose. Other mistakes in a template are found when it is compiled.
    public var requiresDataOnly: Bool

    public init(project: String, oauth: OAuthSimulator.Configuration, requiresDataOnly: Bool = false) {
      self.project = project
      self.oauth = oauth
      self.requiresDataOnly = requiresDataOnly
    }
  }

  private let project: [UInt8]
  private let sendPath: [UInt8]
  private let verifier: FCMMessageVerifier
  private var oauth: OAuthSimulator
  private var faults: FaultEngine
  private var oauthFaults: FaultEngine
  private var serial: UInt64 = 0

  public init(_ configuration: Configuration, faults: FaultPlan = FaultPlan()) {
    project = Array(configuration.project.utf8)
    sendPath = Array("/v1/projects/\(configuration.project)/messages:send".utf8)
    verifier = FCMMessageVerifier(requiresDataOnly: configuration.requiresDataOnly)
    oauth = OAuthSimulator(configuration.oauth)
    self.faults = FaultEngine(faults, for: .fcm)
    oauthFaults = FaultEngine(faults, for: .oauth)
  }

  public mutating func setFaults(_ plan: FaultPlan) {
    faults = FaultEngine(plan, for: .fcm)
    oauthFaults = FaultEngine(plan, for: .oauth)
  }

  public mutating func respond(
    to request: SimulatedRequest, on connection: inout ConnectionMemory, at now: Int64, journal: inout SimulatorJournal
  ) -> SimulatedAnswer {
    let path = request.path
    if path == sendPath[...] { return send(request, at: now, journal: &journal) }
    if path.equals("/token") { return token(request, at: now, journal: &journal) }
    // Another project's path is answered by FCM, any other by the front end.
    let isProject = path.hasPrefix("/v1/projects/") && path.suffix(14).elementsEqual([UInt8]("/messages:send"))
    journal.refuse(.fcm, status: 404, reason: "NOT_FOUND", detail: "another project or path", at: now)
    return isProject ? FCMError.unknownProject.answer : Self.unknownPath
  }

  // MARK: - messages:send

  private mutating func send(
    _ request: SimulatedRequest, at now: Int64, journal: inout SimulatorJournal
  ) -> SimulatedAnswer {
    let message: FCMMessage
    do throws(FCMError) {
      try authorise(request, at: now / 1_000_000)
      message = try verifier.verify(request.body)
    } catch {
      let detail = error.violations.first.map { "\($0.field): \($0.description)" } ?? error.message
      journal.refuse(.fcm, status: error.status, reason: error.reason, detail: detail, at: now)
      return error.answer
    }
    serial += 1
    let id = messageName(at: now)
    var answer = SimulatedAnswer(status: 200, contentType: .json, body: Self.body(name: id))
    if let fault = faults.fault(for: message.token) ?? Self.fault(in: message.token) {
      answer = Self.apply(fault, to: answer)
      guard answer.status == 200 else {
        journal.refuse(.fcm, status: answer.status, reason: fault.countedReason, detail: "fault", at: now)
        return answer
      }
    }
    journal.accept(push(message, id: id, at: now))
    return answer
  }

  private mutating func authorise(_ request: SimulatedRequest, at now: Int64) throws(FCMError) {
    guard request.method.equals("POST") else {
      throw FCMError(status: 405, code: "METHOD_NOT_ALLOWED", message: "The method must be POST")
    }
    guard let authorization = request.headers["authorization"], authorization.hasPrefixIgnoringCase("bearer "),
      oauth.isValid(authorization.dropFirst(7), at: now)
    else { throw .unauthenticated }
    guard request.hasContentType("application/json") else {
      throw .invalidArgument("", "The content type must be application/json")
    }
  }

  private static func fault(in token: ArraySlice<UInt8>) -> Fault? {
    TokenFault.fault(in: token) { name in FCMError.named(name) == nil ? nil : .reason(name) }
  }

  private static func apply(_ fault: Fault, to accepted: SimulatedAnswer) -> SimulatedAnswer {
    if let answer = fault.commonAnswer { return answer }
    var answer = accepted
    if case .answer(let status, let reason, let body) = fault.effect {
      answer = FCMError.named(reason)?.answer ?? FCMError(status: status ?? 400, code: reason, message: reason).answer
      answer.status = status ?? answer.status
      if let body { answer.body = Array(body.utf8) }
    }
    return fault.finish(answer, goAwayReason: "max_age")
  }

  /// `projects/…/messages/0:<microseconds>%<sixteen digits>`, as FCM writes it.
  private func messageName(at now: Int64) -> [UInt8] {
    var writer = JSONWriter(reservingCapacity: 64 + project.count)
    writer.bytes.append(contentsOf: [UInt8]("projects/"))
    writer.bytes.append(contentsOf: project)
    writer.bytes.append(contentsOf: [UInt8]("/messages/0:"))
    writer.appendDecimal(now)
    writer.bytes.append(UInt8(ascii: "%"))
    writer.bytes.appendHex(serial, digits: 16)
    return writer.bytes
  }

  private static func body(name: [UInt8]) -> [UInt8] {
    var writer = JSONWriter(reservingCapacity: name.count + 16)
    writer.beginObject()
    writer.key("name")
    writer.string(name)
    writer.endObject()
    return writer.bytes
  }

  private func push(_ message: FCMMessage, id: [UInt8], at now: Int64) -> AcceptedPush {
    var details: [(name: StaticString, value: ArraySlice<UInt8>)] = []
    details.reserveCapacity(2)
    details.append(("ttl", message.timeToLive))
    if let collapseKey = message.collapseKey { details.append(("collapse_key", collapseKey)) }
    return AcceptedPush(
      provider: .fcm, at: now, environment: "", tokenBytes: message.token, idBytes: id[...],
      kindBytes: message.priority, topicBytes: project[...], details: details,
      payloadBytes: message.data.isEmpty ? Self.noData : message.data, messageBytes: message.text)
  }

  private static let noData: ArraySlice<UInt8> = [UInt8]("{}")[...]

  // MARK: - The token endpoint

  private mutating func token(
    _ request: SimulatedRequest, at now: Int64, journal: inout SimulatorJournal
  ) -> SimulatedAnswer {
    let answer: SimulatedAnswer
    do throws(OAuthSimulator.Refusal) {
      guard request.method.equals("POST") else {
        throw OAuthSimulator.Refusal(error: "invalid_request", description: "The method must be POST")
      }
      answer = try oauth.issue(request, at: now / 1_000_000)
    } catch {
      journal.refuse(.oauth, status: error.answer.status, reason: error.error, detail: error.description, at: now)
      return error.answer
    }
    guard let fault = oauthFaults.fault(for: []) else { return answer }
    if let common = fault.commonAnswer { return common }
    guard case .answer(let status, let reason, let body) = fault.effect else { return fault.finish(answer) }
    var refusal = OAuthSimulator.Refusal(error: reason, description: reason).answer
    refusal.status = status ?? refusal.status
    if let body { refusal.body = Array(body.utf8) }
    journal.refuse(.oauth, status: refusal.status, reason: reason, detail: "fault", at: now)
    return fault.finish(refusal)
  }

  private static let unknownPath = SimulatedAnswer(
    status: 404, contentType: .html,
    body: [UInt8]("<!DOCTYPE html><html lang=en><title>Error 404 (Not Found)!!1</title></html>"))
}

// Expo's push service as a pure function of request and time.

internal import Runtime

/// A strict stand-in for `exp.host`: `/--/api/v2/push/send` and `/--/api/v2/push/getReceipts`.
///
/// A token whose part between the brackets begins with `fault-NAME` gets that fault. NAME is one of `ExpoError.names`
/// for the whole request, an error of a ticket (`fault-DeviceNotRegistered-…`) or of a receipt
/// (`fault-receipt_DeviceNotRegistered-…`), or one of `Fault.names`. A part that begins with `project-NAME-` puts the
/// token into a project of that name. A ticket id that begins with `fault-NAME` causes the errors of whole requests
/// when its receipt is requested.
public struct ExpoSimulator: SimulatedService {
  public static let sendPath = "/--/api/v2/push/send"
  public static let receiptsPath = "/--/api/v2/push/getReceipts"
  /// Maximum size of a message in bytes, without its recipients.
  public static let messageBytesMax = 4_096
  public static let receiptsMax = 1_000
  /// Lifetime of a receipt: one day, in milliseconds.
  static let receiptLifetime: Int64 = 24 * 3_600_000

  public struct Configuration: Sendable {
    /// The access token that every request must contain; nil if none is required.
    public var accessToken: String?
    /// Seconds after which a receipt can be read (Expo: about 15 minutes).
    public var receiptDelay: Int64
    /// Number of notifications in a second above which requests are refused (Expo: 600); nil for no limit.
    public var notificationsPerSecond: Int?

    public init(accessToken: String? = nil, receiptDelay: Int64 = 0, notificationsPerSecond: Int? = nil) {
      self.accessToken = accessToken
      self.receiptDelay = receiptDelay
      self.notificationsPerSecond = notificationsPerSecond
    }
  }

  private let configuration: Configuration
  private let verifier = ExpoMessageVerifier()
  private var faults: FaultEngine
  private var mint: ExpoTicketMint
  private var second: (start: Int64, count: Int) = (0, 0)

  public init(_ configuration: Configuration = Configuration(), faults: FaultPlan = FaultPlan()) {
    self.configuration = configuration
    self.faults = FaultEngine(faults, for: .expo)
    mint = ExpoTicketMint()
  }

  public mutating func setFaults(_ plan: FaultPlan) {
    faults = FaultEngine(plan, for: .expo)
  }

  public mutating func respond(
    to request: SimulatedRequest, on connection: inout ConnectionMemory, at now: Int64, journal: inout SimulatorJournal
  ) -> SimulatedAnswer {
    do throws(ExpoError) {
      let path = request.path
      let isSend = path.elementsEqual(Self.sendPath.utf8)
      guard isSend || path.elementsEqual(Self.receiptsPath.utf8) else {
        throw ExpoError(status: 404, code: "NOT_FOUND", message: "No such path.")
      }
      let body = try self.body(request)
      if isSend { return try send(body, at: now, journal: &journal) }
      return try receipts(body, at: now, journal: &journal)
    } catch {
      journal.refuse(.expo, status: error.status, reason: error.code, detail: error.message, at: now)
      return error.answer
    }
  }

  /// The uncompressed body of a request that has passed the first checks.
  private func body(_ request: SimulatedRequest) throws(ExpoError) -> [UInt8] {
    guard request.method.equals("POST") else {
      throw ExpoError(status: 405, code: "METHOD_NOT_ALLOWED", message: "The method must be POST.")
    }
    if let accessToken = configuration.accessToken {
      let authorization = request.headers["authorization"] ?? []
      guard authorization.hasPrefixIgnoringCase("bearer "), authorization.dropFirst(7).elementsEqual(accessToken.utf8)
      else { throw ExpoError.unauthorized }
    }
    guard request.hasContentType("application/json") else {
      throw .validation("The content type must be application/json.")
    }
    guard let encoding = request.headers["content-encoding"] else { return request.body }
    guard encoding.equals("gzip"), let body = GzipBody.inflated(request.body) else {
      throw .validation("The request body is not gzip.")
    }
    return body
  }

  // MARK: - send

  private mutating func send(
    _ body: [UInt8], at now: Int64, journal: inout SimulatorJournal
  ) throws(ExpoError) -> SimulatedAnswer {
    let (messages, isSingle) = try verifier.verify(body)
    try limit(messages.count, at: now)
    var due: [Fault?] = []
    due.reserveCapacity(messages.count)
    var whole = Fault(.accept)
    for message in messages {
      let fault = faults.fault(for: message.token) ?? Self.fault(in: message.tokenBody)
      due.append(fault)
      guard let fault else { continue }
      if let answer = Self.refusal(of: fault) {
        journal.refuse(.expo, status: answer.status, reason: fault.countedReason, detail: "fault", at: now)
        return answer
      }
      whole.delay = max(whole.delay, fault.delay)
      whole.goesAway = whole.goesAway || fault.goesAway
      if fault.effect == .lose { whole.effect = .lose }
      if case .answer(.some, _, _) = fault.effect { whole.effect = fault.effect }
    }
    var writer = JSONWriter(reservingCapacity: 32 + messages.count * 72)
    writer.beginObject()
    writer.key("data")
    if !isSingle { writer.beginArray() }
    for (message, fault) in zip(messages, due) {
      writeTicket(for: message, fault, to: &writer, at: now, journal: &journal)
    }
    if !isSingle { writer.endArray() }
    writer.endObject()
    var answer = SimulatedAnswer(status: 200, contentType: .json, body: writer.bytes)
    if case .answer(let status, _, let body) = whole.effect {
      answer.status = status ?? 200
      if let body { answer.body = Array(body.utf8) }
    }
    return whole.finish(answer)
  }

  private mutating func limit(_ count: Int, at now: Int64) throws(ExpoError) {
    guard let most = configuration.notificationsPerSecond else { return }
    if now - second.start >= 1_000_000 { second = (now, 0) }
    second.count += count
    guard second.count <= most else {
      throw ExpoError(
        status: 429, code: "TOO_MANY_REQUESTS",
        message: "Exceeded \(most) notifications per second, please try again.")
    }
  }

  /// The answer of a fault that refuses the whole request; nil for the faults of one message.
  private static func refusal(of fault: Fault) -> SimulatedAnswer? {
    if let answer = fault.commonAnswer { return answer }
    guard case .answer(let status, let reason, let body) = fault.effect, ExpoPushError(rawValue: reason) == nil,
      status != 200
    else { return nil }
    var answer =
      ExpoError.named(reason)?.answer ?? ExpoError(status: status ?? 400, code: reason, message: reason).answer
    answer.status = status ?? answer.status
    if let body { answer.body = Array(body.utf8) }
    return fault.finish(answer)
  }

  private mutating func writeTicket(
    for message: ExpoMessage, _ fault: Fault?, to writer: inout JSONWriter, at now: Int64,
    journal: inout SimulatorJournal
  ) {
    var error: ExpoPushError? = message.size > Self.messageBytesMax ? .messageTooBig : nil
    var receiptError: ExpoPushError?
    switch fault?.effect {
    case .answer(_, let reason, _)?: error = ExpoPushError(rawValue: reason) ?? error
    case .receipt(let reason)?: receiptError = ExpoPushError(rawValue: reason)
    default: break
    }
    writer.beginObject()
    writer.key("status")
    if let error {
      writer.string("error" as StaticString)
      writer.key("message")
      writer.string(error.message(message.token.text))
      writer.key("details")
      writer.beginObject()
      writer.key("error")
      writer.string(error.rawValue)
      writer.key("expoPushToken")
      writer.string(message.token)
      writer.endObject()
      journal.refuse(.expo, status: 200, reason: error.rawValue, detail: "ticket", at: now)
    } else {
      let id = mint.ticket(receipt: receiptError, at: now)
      writer.string("ok" as StaticString)
      writer.key("id")
      writer.string(id)
      journal.accept(Self.push(message, id: id, at: now))
    }
    writer.endObject()
  }

  private static func fault(in token: ArraySlice<UInt8>) -> Fault? {
    TokenFault.fault(in: token) { name in
      if ExpoPushError(rawValue: name) != nil || ExpoError.named(name) != nil { return .reason(name) }
      let receipt = ExpoPushError.allCases.first { $0.receiptFaultName == name }
      return receipt.map { Fault(.receipt($0.rawValue)) }
    }
  }

  private static func push(_ message: ExpoMessage, id: [UInt8], at now: Int64) -> AcceptedPush {
    var details: [(name: StaticString, value: ArraySlice<UInt8>)] = []
    if let value = message.timeToLive { details.append(("ttl", value)) }
    if let value = message.expiration { details.append(("expiration", value)) }
    if let value = message.collapseID { details.append(("collapseId", value)) }
    return AcceptedPush(
      provider: .expo, at: now, environment: "", tokenBytes: message.token, idBytes: id[...],
      kindBytes: message.priority, topicBytes: message.project, details: details, payloadBytes: message.text)
  }

  // MARK: - getReceipts

  private func receipts(
    _ body: [UInt8], at now: Int64, journal: inout SimulatorJournal
  ) throws(ExpoError) -> SimulatedAnswer {
    guard let json = try? JSONScanner(body), json.root.kind == .object, let ids = json.member("ids"), ids.kind == .array
    else { throw .validation("\"ids\" is required and must be an array") }
    let wanted = Array(json.elements(of: ids))
    guard wanted.count <= Self.receiptsMax else {
      throw ExpoError.tooManyReceipts
    }
    var writer = JSONWriter(reservingCapacity: 32 + wanted.count * 64)
    writer.beginObject()
    writer.key("data")
    writer.beginObject()
    for value in wanted {
      guard let id = json.contents(value) else { throw .validation("\"ids\" must hold strings") }
      if let fault = Self.fault(in: id), let answer = Self.refusal(of: fault) {
        journal.refuse(.expo, status: answer.status, reason: fault.countedReason, detail: "fault", at: now)
        return answer
      }
      guard let ticket = mint.read(id) else { continue }
      let age = now / 1_000 - ticket.issuedAt
      guard age >= configuration.receiptDelay * 1_000, age < Self.receiptLifetime else { continue }
      writer.key(Array(id))
      Self.write(ticket.error, to: &writer)
    }
    writer.endObject()
    writer.endObject()
    return SimulatedAnswer(status: 200, contentType: .json, body: writer.bytes)
  }

  private static func write(_ error: ExpoPushError?, to writer: inout JSONWriter) {
    writer.beginObject()
    writer.key("status")
    if let error {
      writer.string("error" as StaticString)
      writer.key("message")
      writer.string(error.message(nil))
      writer.key("details")
      writer.beginObject()
      writer.key("error")
      writer.string(error.rawValue)
      writer.endObject()
    } else {
      writer.string("ok" as StaticString)
    }
    writer.endObject()
  }
}

// Reads what Expo answered to a send request. Pure, and ready for anything: HTML, cut-off JSON, tickets that do not add
// up.

internal import Runtime

/// The meaning of one answer for the messages of its request.
enum ExpoAnswer: Equatable {
  /// One outcome a message, in the order of the request.
  case tickets([PushOutcome])
  /// The same outcome for all of them.
  case all(PushOutcome)
  /// Not sent, because the messages belong to several projects; the tokens of each, where Expo named them.
  case splitByProject([[[UInt8]]])

  /// - Parameters:
  ///   - count: how many messages the request had.
  ///   - wallMilliseconds: now, for a Retry-After that is a date.
  init(_ response: CurlResponse, count: Int, wallMilliseconds: Int64) {
    let after = response.retryAfter.flatMap {
      RetryAfter.parse($0, date: response.date, wallMilliseconds: wallMilliseconds)
    }
    let json = try? JSONScanner(response.body)
    if response.status == 200, let json, let tickets = json.member("data"), tickets.kind == .array {
      let outcomes = json.elements(of: tickets).map { Self.outcome(of: $0, in: json) }
      // Tickets are matched by their place alone: one too few or too many, and none can be believed.
      self = outcomes.count == count ? .tickets(outcomes) : .all(.unknown(reason: "TicketCountMismatch"))
    } else if let json, let error = Self.firstError(in: json) {
      self = Self.answer(to: error, in: json, status: response.status, after: after)
    } else if response.status == 200 {
      self = .all(.unknown(reason: "MalformedAnswer"))
    } else {
      let verdict = ExpoReasonTable.verdict(status: response.status)
      self = .all(Self.outcome(verdict, reason: "HTTP\(response.status)", after: after))
    }
  }

  /// No answer at all.
  init(_ failure: CurlFailure) {
    let reason = failure.reason.rawValue
    switch failure.reason {
    case .deadlinePassed: self = .all(.expired)
    case .addressNotAllowed, .malformedRequest, .rootsUnusable: self = .all(.unauthorized(reason: reason))
    case _ where failure.sentAt != nil: self = .all(.unknown(reason: reason))
    case .closed: self = .all(.refused(reason: reason))
    default: self = .all(.unavailable(reason: reason, after: nil))
    }
  }

  // MARK: - Tickets

  private static func outcome(of ticket: JSONScanner.Value, in json: JSONScanner) -> PushOutcome {
    switch json.member("status", of: ticket).flatMap(json.text) {
    case "ok":
      return .accepted(messageID: json.member("id", of: ticket).flatMap(json.text))
    case "error":
      let error = json.member("details", of: ticket).flatMap { json.member("error", of: $0) }.flatMap(json.text)
      guard let code = error.flatMap(identifier) else { return .rejected(reason: "TicketErrorWithoutCode") }
      // A code nobody has documented yet may be of either kind; a second try inside the ring window does no harm.
      return outcome(ExpoReasonTable.ticket(code)?.verdict ?? .unavailable, reason: code, after: nil)
    default:
      return .unknown(reason: "MalformedTicket")
    }
  }

  // MARK: - Whole requests

  private static func firstError(in json: JSONScanner) -> JSONScanner.Value? {
    json.member("errors").flatMap { json.elements(of: $0).first { $0.kind == .object } }
  }

  private static func answer(
    to error: JSONScanner.Value, in json: JSONScanner, status: UInt16, after: Nanoseconds?
  ) -> ExpoAnswer {
    let code = json.member("code", of: error).flatMap(json.text).flatMap(identifier)
    let verdict = code.flatMap(ExpoReasonTable.request)?.verdict
    if verdict == .splitByProject {
      let projects = json.member("details", of: error).map { json.members(of: $0) }
      return .splitByProject(
        projects?.map { project in json.elements(of: project.value).compactMap { json.string($0) } } ?? [])
    }
    let reason = code ?? "HTTP\(status)"
    // 200 with errors and no tickets: nothing was sent, and only the code can say why.
    return .all(outcome(verdict ?? ExpoReasonTable.verdict(status: status), reason: reason, after: after))
  }

  private static func outcome(_ verdict: ExpoReasonTable.Verdict, reason: String, after: Nanoseconds?) -> PushOutcome {
    switch verdict {
    case .tokenInvalid: .tokenInvalid(reason: reason, since: nil)
    case .rejected, .splitByProject: .rejected(reason: reason)
    case .throttled: .throttled(reason: reason, after: after, isLaneWide: false)
    case .throttledLane: .throttled(reason: reason, after: after, isLaneWide: true)
    case .unavailable: .unavailable(reason: reason, after: after)
    case .unauthorized: .unauthorized(reason: reason)
    }
  }

  /// A code as it may stand in logs and labels: a short identifier, or nil.
  private static func identifier(_ text: String) -> String? {
    let isPlain = text.utf8.allSatisfy {
      UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 | 0x20 || UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0
        || $0 == UInt8(ascii: "_")
    }
    return isPlain && !text.isEmpty && text.utf8.count <= 64 ? text : nil
  }
}

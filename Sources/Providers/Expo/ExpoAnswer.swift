// Reads Expo's answer to a send request. No I/O. Any body is handled: HTML, cut-off JSON, a wrong number of tickets.

internal import Runtime

/// The meaning of one answer for the messages of its request.
enum ExpoAnswer: Equatable {
  /// One outcome for each message, in the order of the request.
  case tickets([PushOutcome])
  /// The same outcome for all messages.
  case all(PushOutcome)
  /// Not sent, because the messages belong to several projects. Contains the tokens of each project if Expo named them.
  case splitByProject([[[UInt8]]])
  /// Not sent, because the request has too many messages.
  case sendFewer
  /// Not sent. The answer refuses the request, and says nothing about any one of its messages.
  case halve

  /// - Parameters:
  ///   - count: number of messages in the request.
  ///   - wallMilliseconds: the current time, for a Retry-After that is a date.
  init(_ response: CurlResponse, count: Int, wallMilliseconds: Int64) {
    let json = try? JSONScanner(response.body)
    if response.status == 200, let json, let tickets = json.member("data"), tickets.kind == .array {
      let outcomes = json.elements(of: tickets).map { Self.outcome(of: $0, in: json) }
      // Tickets are matched only by position. If their number is wrong, no ticket can be trusted.
      self = outcomes.count == count ? .tickets(outcomes) : .all(.unknown(reason: "TicketCountMismatch"))
    } else if let refusal = ExpoRefusal(response, json, wallMilliseconds: wallMilliseconds) {
      switch refusal.meaning {
      case .splitByProject where count > 1: self = .splitByProject(refusal.projects)
      case .sendFewer where count > 1: self = .sendFewer
      case .rejected where count > 1: self = .halve
      default: self = .all(refusal.outcome)
      }
    } else {
      self = .all(.unknown(reason: "MalformedAnswer"))
    }
  }

  private static func outcome(of ticket: JSONScanner.Value, in json: JSONScanner) -> PushOutcome {
    switch json.member("status", of: ticket).flatMap(json.text) {
    case "ok":
      return .accepted(
        messageID: json.member("id", of: ticket).flatMap(json.string).flatMap(SafeProviderText.messageID))
    case "error":
      guard let code = ExpoReasonTable.errorCode(of: ticket, in: json) else {
        return .rejected(reason: "TicketErrorWithoutCode")
      }
      // An undocumented code may be permanent or temporary. Another attempt within the ring window does no harm.
      return (ExpoReasonTable.ticket(code)?.meaning ?? .unavailable).outcome(reason: code)
    default:
      return .unknown(reason: "MalformedTicket")
    }
  }
}

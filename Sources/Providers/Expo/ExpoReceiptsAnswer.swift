// Reads Expo's answer to a request for receipts, which say how APNs or FCM answered pushes that Expo accepted earlier. No I/O. Any
// body is handled.

internal import Runtime

/// The receipts of some tickets.
public enum ExpoReceiptsAnswer: Sendable, Equatable {
  /// Outcomes by ticket: `.accepted(messageID: nil)` if APNs or FCM accepted the push, otherwise their error. A missing ticket has
  /// no receipt yet, or its receipt has been deleted.
  case receipts([String: PushOutcome])
  /// No receipt was read. The request can be repeated later.
  case failed(PushOutcome)
}

extension ExpoReceiptsAnswer {
  /// - Parameters:
  ///   - tickets: the requested tickets. Other tickets in the answer are ignored.
  ///   - wallMilliseconds: the current time, for a Retry-After that is a date.
  init(_ response: CurlResponse, tickets: [String], wallMilliseconds: Int64) {
    let json = try? JSONScanner(response.body)
    if response.status == 200, let json, let receipts = json.member("data"), receipts.kind == .object {
      let asked = Set(tickets)
      var outcomes: [String: PushOutcome] = [:]
      outcomes.reserveCapacity(tickets.count)
      for member in json.members(of: receipts) {
        let ticket = String(decoding: json.key(member), as: UTF8.self)
        guard asked.contains(ticket) else { continue }
        outcomes[ticket] = Self.outcome(of: member.value, in: json)
      }
      self = .receipts(outcomes)
    } else if let refusal = ExpoRefusal(response, json, wallMilliseconds: wallMilliseconds) {
      self = .failed(refusal.outcome)
    } else {
      self = .failed(.unavailable(reason: "MalformedAnswer", after: nil))
    }
  }

  /// The result of a request without an answer. A request for receipts can be repeated without harm, so the outcome is never
  /// `unknown`.
  init(_ failure: CurlFailure) {
    let outcome = ExpoReasonTable.outcome(of: failure)
    if case .unknown(let reason) = outcome {
      self = .failed(.unavailable(reason: reason, after: nil))
    } else {
      self = .failed(outcome)
    }
  }

  /// The outcome in a receipt. Nil if the value is not a receipt; the ticket then counts as having none yet.
  private static func outcome(of receipt: JSONScanner.Value, in json: JSONScanner) -> PushOutcome? {
    switch json.member("status", of: receipt).flatMap(json.text) {
    case "ok": return .accepted(messageID: nil)
    case "error":
      guard let code = ExpoReasonTable.errorCode(of: receipt, in: json) else {
        return .rejected(reason: "ReceiptErrorWithoutCode")
      }
      // The push ended long ago, so an undocumented code is only recorded.
      return (ExpoReasonTable.receipt(code)?.meaning ?? .rejected).outcome(reason: code)
    default: return nil
    }
  }
}

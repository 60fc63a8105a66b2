// Reads what Expo answered to a question for receipts: what APNs or FCM made of pushes that Expo took over some time
// ago. Pure, and ready for anything.

internal import Runtime

/// What is known of the pushes behind some tickets.
public enum ExpoReceiptsAnswer: Sendable, Equatable {
  /// By ticket: `.accepted(messageID: nil)` when APNs or FCM took the push over, else what they said. A ticket that is
  /// missing has no receipt yet, or none any more.
  case receipts([String: PushOutcome])
  /// Nothing was learned of any of them: ask again later.
  case failed(PushOutcome)
}

extension ExpoReceiptsAnswer {
  /// - Parameters:
  ///   - tickets: those that were asked for; whatever else the answer speaks of is passed over.
  ///   - wallMilliseconds: now, for a Retry-After that is a date.
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

  /// No answer at all. A lost question can be asked again without harm, so nothing is ever `unknown`.
  init(_ failure: CurlFailure) {
    let outcome = ExpoReasonTable.outcome(of: failure)
    if case .unknown(let reason) = outcome {
      self = .failed(.unavailable(reason: reason, after: nil))
    } else {
      self = .failed(outcome)
    }
  }

  /// Nil for what is no receipt: it counts as not there yet.
  private static func outcome(of receipt: JSONScanner.Value, in json: JSONScanner) -> PushOutcome? {
    switch json.member("status", of: receipt).flatMap(json.text) {
    case "ok": return .accepted(messageID: nil)
    case "error":
      guard let code = ExpoReasonTable.errorCode(of: receipt, in: json) else {
        return .rejected(reason: "ReceiptErrorWithoutCode")
      }
      // The push is long over, so a code nobody has documented is only written down.
      return (ExpoReasonTable.receipt(code)?.meaning ?? .rejected).outcome(reason: code)
    default: return nil
    }
  }
}

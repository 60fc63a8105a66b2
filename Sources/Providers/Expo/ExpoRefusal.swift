// Reads an answer that refuses a whole request, for pushes or for receipts: an error of Expo, or a status whose body has no known
// code.

internal import Runtime

/// Why a whole request was refused.
struct ExpoRefusal {
  let meaning: ExpoReasonTable.Meaning
  let reason: String
  /// The answer's Retry-After.
  let after: Nanoseconds?
  /// The tokens of each project, if the request mixed several projects and Expo named them.
  let projects: [[[UInt8]]]

  /// Nil if the answer is a 200 without an error.
  ///
  /// - Parameters:
  ///   - json: the answer's body, if it is JSON.
  ///   - wallMilliseconds: the current time, for a Retry-After that is a date.
  init?(_ response: CurlResponse, _ json: JSONScanner?, wallMilliseconds: Int64) {
    let error = json.flatMap { json in
      json.member("errors").flatMap { json.elements(of: $0).first { $0.kind == .object } }
    }
    guard response.status != 200 || error != nil else { return nil }
    let code = json.flatMap { json in
      error.flatMap { json.member("code", of: $0) }.flatMap { SafeProviderText.reason($0, in: json) }
    }
    // If a 200 has only an error, nothing was done, and only the code gives the reason. A 5xx counts as an outage of Expo, whatever
    // its code is.
    let row = (500...599).contains(response.status) ? nil : code.flatMap(ExpoReasonTable.request)
    meaning = row?.meaning ?? ExpoReasonTable.meaning(status: response.status)
    reason = code ?? "HTTP\(response.status)"
    after = response.retryAfter.flatMap {
      RetryAfter.parse($0, date: response.date, wallMilliseconds: wallMilliseconds)
    }
    guard meaning == .splitByProject, let json, let details = error.flatMap({ json.member("details", of: $0) }) else {
      projects = []
      return
    }
    projects = json.members(of: details).map { project in
      json.elements(of: project.value).compactMap { json.string($0) }
    }
  }

  var outcome: PushOutcome { meaning.outcome(reason: reason, after: after) }
}

// Reads an answer that refuses a whole request, of pushes or of receipts: Expo's own errors, or a status whose body says
// nothing we know.

internal import Runtime

/// Why a request got nothing.
struct ExpoRefusal {
  let meaning: ExpoReasonTable.Meaning
  let reason: String
  /// The answer's Retry-After.
  let after: Nanoseconds?
  /// The tokens of each project, where Expo named them because a request mixed several.
  let projects: [[[UInt8]]]

  /// Nil when the answer is a 200 that says of no error.
  ///
  /// - Parameters:
  ///   - json: the answer's body, if it is JSON.
  ///   - wallMilliseconds: now, for a Retry-After that is a date.
  init?(_ response: CurlResponse, _ json: JSONScanner?, wallMilliseconds: Int64) {
    let error = json.flatMap { json in
      json.member("errors").flatMap { json.elements(of: $0).first { $0.kind == .object } }
    }
    guard response.status != 200 || error != nil else { return nil }
    let code = json.flatMap { json in
      error.flatMap { json.member("code", of: $0) }.flatMap { SafeProviderText.reason($0, in: json) }
    }
    // A 200 with an error and nothing else: nothing was done, and only the code can say why. Trouble at Expo stays trouble,
    // whatever it speaks of.
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

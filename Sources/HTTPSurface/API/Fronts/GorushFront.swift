// gorush's POST /api/push. It answers 200 with an entry in `logs` for each token for which nothing was done, as gorush does
// with `sync: true`; what a provider says later is in push.timeline.

internal import HTTPTypes
internal import Hummingbird
internal import Queue
internal import Runtime

/// Answers clients of gorush.
struct GorushFront: Sendable {
  let database: PostgresPool
  let enqueuer: APIEnqueuer
  let backlog: APIBacklog
  /// Whether tokens are masked in answers.
  let hidesTokens: Bool
  let clock: any GatewayClock

  func push(_ body: [UInt8], _ trace: Traceparent?, _ client: APIClient) async throws(APIProblem) -> FrontAnswer {
    let json: JSONScanner
    do {
      json = try JSONScanner(body)
    } catch {
      throw .notJSON(error)
    }
    let notifications = try GorushNotification.all(of: json)
    let plan = GorushPlan(notifications, in: json, at: clock.wallMilliseconds())
    var refused = plan.refused
    var callIDs: [String] = []
    var succeeded = 0
    var problem: APIProblem?
    for group in plan.groups where !group.phones.isEmpty {
      do throws(APIProblem) {
        let (callID, failures) = try await perform(group, trace, client)
        if let callID { callIDs.append(callID) }
        succeeded += 1
        refused += failures
      } catch {
        if error.status.kind == .serverError || error.status == .tooManyRequests { problem = problem ?? error }
        refused += Self.refused(group.mentions, Self.sentence(error))
      }
    }
    // Nothing was done, so the whole request can be tried again.
    if succeeded == 0, let problem { throw problem }
    return FrontAnswer(
      body: answer(plan.tokenCount, refused, notifications), callIDs: callIDs, refusedTokens: refused.count)
  }

  // MARK: - Groups

  private typealias Result = (callID: String?, failures: [GorushPlan.Refused])

  private func perform(
    _ group: GorushPlan.Group, _ trace: Traceparent?, _ client: APIClient
  ) async throws(APIProblem) -> Result {
    switch group.action {
    case .ring(let kind), .show(let kind): try await enqueue(group, kind, trace, client)
    case .stop: try await stop(group, client)
    }
  }

  private func enqueue(
    _ group: GorushPlan.Group, _ kind: String, _ trace: Traceparent?, _ client: APIClient
  ) async throws(APIProblem) -> Result {
    try await backlog.check(client.app)
    var writer = JSONWriter(reservingCapacity: group.phones.count * 256)
    writer.beginArray()
    for phone in group.phones { phone.entry.write(to: &writer) }
    writer.endArray()
    let call = APICall(
      payload: group.payload, recipients: writer.bytes, app: client.app, ringSeconds: group.seconds, kind: kind,
      traceparent: trace?.text, hasID: group.id != nil, recipientCount: group.phones.count)
    let made = try await enqueuer.enqueue(call, of: client)
    var failures = made.skipped > 0 ? try await skipped(made, group, client) : []
    if made.isDuplicate {
      let (_, absent) = try await compare(made.callID, group, client)
      let here = group.mentions.filter { absent.contains($0.entry.userID) }
      failures += Self.refused(here, Self.known(group.action))
    }
    return (made.callID, failures)
  }

  private func skipped(
    _ call: EnqueuedCall, _ group: GorushPlan.Group, _ client: APIClient
  ) async throws(APIProblem) -> [GorushPlan.Refused] {
    var parameters = PostgresParameters()
    parameters.append(call.outboxID)
    let bytes = try await database.query(APIStatements.skippedRecipients, parameters, for: .call(client)).json(0, 0)
    let json = JSONScanner(trusting: bytes)
    let mentions = Dictionary(grouping: group.mentions, by: \.entry.userID)
    var failures: [GorushPlan.Refused] = []
    for element in json.elements(of: json.root) {
      guard let phones = json.member("userId", of: element).flatMap(json.text).flatMap({ mentions[$0] }),
        let reason = json.member("reason", of: element).flatMap(json.text)
      else { continue }
      // The words by which clients of gorush know that a token is to be deleted.
      let dead = phones[0].entry.kind == .fcm ? "NotRegistered" : "Unregistered"
      failures += Self.refused(phones, reason == "TokenInvalid" ? dead : reason)
    }
    return failures
  }

  /// Every token is a user of its own here. So some of the tokens are stopped as if their users had declined, and all of them
  /// as if the caller had hung up.
  private func stop(_ group: GorushPlan.Group, _ client: APIClient) async throws(APIProblem) -> Result {
    guard let id = group.id else { throw .broken }
    let (others, absent) = try await compare(id, group, client)
    let failures = Self.refused(
      group.mentions.filter { absent.contains($0.entry.userID) }, "data.callId: this call does not ring this token")
    let here = group.phones.filter { !absent.contains($0.entry.userID) }
    guard !here.isEmpty else { return (nil, failures) }
    var parameters = PostgresParameters()
    parameters.append(id)
    parameters.append(client.app)
    if others == 0 {
      parameters.append(group.reason)
      _ = try await database.query(APIStatements.endCall, parameters, for: .call(client))
    } else {
      parameters.append(texts: here.map { Array($0.entry.userID.utf8) })
      _ = try await database.query(APIStatements.declineUsers, parameters, for: .call(client))
    }
    return (id, failures)
  }

  private func compare(
    _ callID: String, _ group: GorushPlan.Group, _ client: APIClient
  ) async throws(APIProblem) -> (others: Int32, absent: Set<String>) {
    var parameters = PostgresParameters()
    parameters.append(callID)
    parameters.append(client.app)
    parameters.append(texts: group.phones.map { Array($0.entry.userID.utf8) })
    let row = try await database.query(APIStatements.compareRecipients, parameters, for: .call(client))
    return (row.int32(0, 0), Set(row.text(0, 1).split(separator: " ").map(String.init)))
  }

  // MARK: - The answer

  private static func refused(_ phones: [GorushPlan.Phone], _ error: String) -> [GorushPlan.Refused] {
    phones.map { GorushPlan.Refused(notification: $0.notification, token: $0.entry.token, error: error) }
  }

  private static func known(_ action: GorushPlan.Action) -> String {
    if case .ring = action {
      "data.callId: this call is known, and does not ring this token; give all tokens of a call in one request"
    } else {
      "data: this notification is known, and was not for this token; give all tokens of a notification in one request"
    }
  }

  /// The payload is called `data` here.
  private static func sentence(_ problem: APIProblem) -> String {
    guard let field = problem.field else { return problem.detail }
    let name = field.hasPrefix("payload") ? "data" + field.dropFirst("payload".count) : field
    return "\(name): \(problem.detail)"
  }

  private func answer(
    _ tokenCount: Int, _ refused: [GorushPlan.Refused], _ notifications: [GorushNotification]
  ) -> [UInt8] {
    var writer = JSONWriter(reservingCapacity: 64 + refused.count * 128)
    writer.beginObject()
    writer.key("counts")
    writer.integer(Int64(tokenCount))
    writer.key("logs")
    writer.beginArray()
    for refusal in refused {
      let notification = notifications[refusal.notification]
      writer.beginObject()
      if let id = notification.id {
        writer.key("notif_id")
        writer.string(id)
      }
      writer.key("type")
      writer.string("failed-push")
      writer.key("platform")
      writer.string(notification.platform?.name ?? "")
      writer.key("token")
      writer.string(hidesTokens ? Self.masked(refusal.token) : refusal.token)
      // gorush repeats the text of the notification. The gateway does not read it.
      writer.key("message")
      writer.string("")
      writer.key("error")
      writer.string(refusal.error)
      writer.endObject()
    }
    writer.endArray()
    writer.key("success")
    writer.string("ok")
    writer.endObject()
    return writer.bytes
  }

  /// As `push.deliveries` shows tokens.
  private static func masked(_ token: String) -> String {
    let characters = Array(token.unicodeScalars)
    guard characters.count > 16 else { return String(repeating: "*", count: characters.count) }
    var mask = String.UnicodeScalarView(characters.prefix(4))
    mask.append("…")
    mask.append(contentsOf: characters.suffix(4))
    return String(mask)
  }
}

// The operations of the API: from a checked request to SQL, and from its result to an answer.

internal import HTTPTypes
internal import Hummingbird
internal import Providers
internal import Queue
internal import Runtime

/// Executes the requests of clients whose key was verified.
struct APIOperations: Sendable {
  /// Maximum number of devices on one page of a call.
  static let pageMax: Int32 = 500

  let database: PostgresPool
  let enqueuer: APIEnqueuer
  let backlog: APIBacklog
  let apps: APIApps

  /// - Parameters:
  ///   - query: the query of the URL; only `readCall` uses it.
  ///   - body: the bytes as received; empty if there is no body.
  ///   - trace: the trace that an enqueued call belongs to; nil for none.
  func perform(
    _ operation: APIOperation, callID: String, query: APIQuery, body: [UInt8], trace: Traceparent?,
    for client: APIClient
  ) async throws(APIProblem) -> Response {
    switch operation {
    case .enqueueCall: try await enqueue(body, trace, client)
    case .addRecipients: try await addRecipients(callID, body, client)
    case .answerCall: try await answer(callID, body, client)
    case .declineCall: try await decline(callID, body, client)
    case .endCall: try await end(callID, body, client)
    case .reportRinging: try await reportRinging(callID, body, client)
    case .readCall: try await read(callID, query, client)
    case .registerDevice: try await registerDevice(body, client)
    case .dropDevice: try await dropDevice(body, client)
    // `APIFronts` performs these.
    case .notifyMatrix, .pushGorush: throw .noSuchPath
    }
  }

  // MARK: - Calls

  private func enqueue(
    _ bytes: [UInt8], _ trace: Traceparent?, _ client: APIClient
  ) async throws(APIProblem) -> Response {
    let call = try Self.call(bytes, trace, client.app)
    try await backlog.check(client.app)
    let made = try await enqueuer.enqueue(call, of: client)
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("callId")
    writer.string(made.callID)
    writer.key("outboxId")
    writer.integer(made.outboxID)
    writer.key("deliveries")
    writer.integer(Int64(made.deliveries))
    writer.key("duplicate")
    writer.boolean(made.isDuplicate)
    writer.key("skipped")
    writer.integer(Int64(made.skipped))
    writer.key("skippedRecipients")
    writer.raw(try await skippedRecipients(of: made, client))
    if call.rings, apps.needsUUID(client.app), !Self.isUUID(made.callID) {
      writer.key("warning")
      writer.string("payload.callId: is no UUID in small letters; an iPhone's app could not answer this call")
    }
    if made.isDuplicate {
      writer.key("existing")
      writer.raw(try await existing(made.callID, call, client))
    }
    writer.endObject()
    return Self.json(writer.bytes, .accepted, [.location: APIRoute.path(ofCall: made.callID)])
  }

  private static func call(_ bytes: [UInt8], _ trace: Traceparent?, _ app: String) throws(APIProblem) -> APICall {
    let body = try APIBody(bytes, members: ["payload", "recipients", "ringSeconds", "kind"])
    return APICall(
      payload: try body.json("payload", .object, "must be an object"),
      recipients: try recipients(body), app: app,
      ringSeconds: try body.optionalInteger("ringSeconds", in: 1...2_419_200),
      kind: try body.optionalText("kind", max: 64), traceparent: trace?.text,
      hasID: body.has(["callId", "messageId"], in: "payload"), recipientCount: body.count("recipients"))
  }

  /// Whether a text has the form in which CallKit's ids come back: 8-4-4-4-12 hexadecimal digits, in small letters.
  private static func isUUID(_ text: String) -> Bool {
    text.wholeMatch(of: /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/) != nil
  }

  /// The call that existed already, compared with this one, as a JSON object.
  private func existing(_ callID: String, _ call: APICall, _ client: APIClient) async throws(APIProblem) -> [UInt8] {
    var parameters = PostgresParameters()
    parameters.append(callID)
    parameters.append(client.app)
    parameters.append(text: call.payload)
    parameters.append(text: call.recipients)
    return try await database.query(APIStatements.compareCall, parameters, for: .call(client)).json(0, 0)
  }

  private static func recipients(_ body: APIBody) throws(APIProblem) -> [UInt8] {
    try body.json("recipients", .array, "must be an array of user ids or objects")
  }

  private func addRecipients(
    _ callID: String, _ bytes: [UInt8], _ client: APIClient
  ) async throws(APIProblem) -> Response {
    let recipients = try Self.recipients(APIBody(bytes, members: ["recipients"]))
    var parameters = PostgresParameters()
    parameters.append(callID)
    parameters.append(client.app)
    parameters.append(text: recipients)
    let joined = try await database.query(APIStatements.addRecipients, parameters, for: .call(client))
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("callId")
    writer.string(callID)
    writer.key("deliveries")
    writer.integer(Int64(joined.int32(0, 0)))
    writer.key("skipped")
    writer.integer(Int64(joined.int32(0, 1)))
    writer.key("skippedRecipients")
    writer.raw(joined.json(0, 2))
    writer.endObject()
    return Self.json(writer.bytes)
  }

  /// The skipped recipients as a JSON array. This needs a second statement, because a statement cannot see the rows
  /// that its own function calls insert. Usually none were skipped.
  private func skippedRecipients(of call: EnqueuedCall, _ client: APIClient) async throws(APIProblem) -> [UInt8] {
    guard call.skipped > 0 else { return Array("[]".utf8) }
    var parameters = PostgresParameters()
    parameters.append(call.outboxID)
    return try await database.query(APIStatements.skippedRecipients, parameters, for: .call(client)).json(0, 0)
  }

  private func answer(_ callID: String, _ bytes: [UInt8], _ client: APIClient) async throws(APIProblem) -> Response {
    let body = try APIBody(bytes, members: ["userId", "device"])
    let userID = try body.optionalText("userId", max: 256)
    return try await change(callID, APIStatements.answerCall, [userID, try Self.device(body)], client)
  }

  private func decline(_ callID: String, _ bytes: [UInt8], _ client: APIClient) async throws(APIProblem) -> Response {
    let body = try APIBody(bytes, members: ["userId", "reason", "device"])
    let userID = try body.text("userId", max: 256)
    let reason = try body.optionalText("reason", max: 64)
    guard [nil, "declined", "busy", "connection_failed"].contains(reason) else {
      throw .invalid("reason", "must be declined, busy or connection_failed, or left out")
    }
    let device = try Self.device(body)
    do {
      return try await change(callID, APIStatements.declineCall, [userID, reason, device], client)
    } catch  where error.field == "userId" {
      throw .noSuchRecipient
    }
  }

  private func end(_ callID: String, _ bytes: [UInt8], _ client: APIClient) async throws(APIProblem) -> Response {
    let body = try APIBody(bytes, members: ["reason"])
    return try await change(callID, APIStatements.endCall, [try body.optionalText("reason", max: 64)], client)
  }

  private func reportRinging(_ callID: String, _ bytes: [UInt8], _ client: APIClient) async throws(APIProblem)
    -> Response
  {
    let body = try APIBody(bytes, members: ["userId"])
    let userID = try body.text("userId", max: 256)
    do {
      return try await change(callID, APIStatements.reportRinging, [userID], client)
    } catch  where error.field == "userId" {
      throw .noSuchRecipient
    }
  }

  /// Executes a statement about a call that returns whether it changed anything.
  private func change(
    _ callID: String, _ statement: PostgresStatement, _ arguments: [String?], _ client: APIClient
  ) async throws(APIProblem) -> Response {
    var parameters = PostgresParameters()
    parameters.append(callID)
    parameters.append(client.app)
    for argument in arguments { parameters.append(argument) }
    let hasChanged = try await database.query(statement, parameters, for: .call(client)).bool(0, 0)
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("callId")
    writer.string(callID)
    writer.key("changed")
    writer.boolean(hasChanged)
    writer.endObject()
    return Self.json(writer.bytes)
  }

  private func read(_ callID: String, _ query: APIQuery, _ client: APIClient) async throws(APIProblem) -> Response {
    var parameters = PostgresParameters()
    parameters.append(callID)
    parameters.append(client.app)
    parameters.append(try query.integer("after", in: 0...Int32.max - 1))
    parameters.append(try query.integer("limit", in: 1...Self.pageMax) ?? Self.pageMax)
    return Self.json(try await database.query(APIStatements.readCall, parameters, for: .other(client)).json(0, 0))
  }

  // MARK: - Devices

  private func registerDevice(_ bytes: [UInt8], _ client: APIClient) async throws(APIProblem) -> Response {
    let body = try APIBody(
      bytes, members: ["userId", "provider", "token", "environment", "platform", "locale", "voip", "enabled"])
    var parameters = PostgresParameters()
    parameters.append(try body.text("userId", max: 256))
    parameters.append(client.app)
    parameters.append(try body.text("provider", max: 16))
    parameters.append(try Self.token(body))
    parameters.append(try body.optionalText("environment", max: 16))
    parameters.append(try body.optionalText("platform", max: 16))
    parameters.append(try body.optionalText("locale", max: 64))
    parameters.append(try body.optionalBoolean("voip") ?? true)
    parameters.append(try body.optionalBoolean("enabled").map { $0 ? "true" : "false" })
    _ = try await database.query(APIStatements.registerDevice, parameters, for: .other(client))
    return Response(status: .noContent, headers: [.cacheControl: "no-store"])
  }

  private func dropDevice(_ bytes: [UInt8], _ client: APIClient) async throws(APIProblem) -> Response {
    let body = try APIBody(bytes, members: ["provider", "token"])
    var parameters = PostgresParameters()
    parameters.append(client.app)
    let provider = try body.text("provider", max: 16)
    guard ProviderKind(rawValue: provider) != nil else {
      throw .invalid("provider", "must be \(ProviderKind.names())")
    }
    parameters.append(provider)
    parameters.append(try Self.token(body))
    _ = try await database.query(APIStatements.dropDevice, parameters, for: .other(client))
    return Response(status: .noContent, headers: [.cacheControl: "no-store"])
  }

  /// A token, or the id of a row of `push.devices`; nil if it is left out.
  private static func device(_ body: APIBody) throws(APIProblem) -> String? {
    guard let device = try body.optionalTextOrObject("device", max: 4_096) else { return nil }
    guard mayBeToken(device) else {
      throw .invalid("device", "must be a token of the phone, or the id that it has in push.devices, or left out")
    }
    return device
  }

  /// Checks only the characters of a token. The database knows the form of each provider's tokens, and makes one text of the object
  /// that a browser's `PushSubscription` is.
  private static func token(_ body: APIBody) throws(APIProblem) -> String {
    guard let token = try body.optionalTextOrObject("token", max: 4_096) else {
      throw .invalid("token", "must be a string of 1 to 4096 characters, or the browser's PushSubscription")
    }
    guard mayBeToken(token) else { throw .invalid("token", "must have the form of a provider's token") }
    return token
  }

  /// Phones print tokens with blanks, and backends read lines. A backslash would be an escape in bytea, and tokens are found by the digest
  /// of their bytea.
  private static func mayBeToken(_ text: String) -> Bool {
    let (blanks, backslash) = (Set("\t\r\n".utf8), UInt8(ascii: "\\"))
    return text.hasPrefix("{") || text.utf8.allSatisfy { 0x20...0x7E ~= $0 && $0 != backslash || blanks.contains($0) }
  }

  private static func json(
    _ bytes: [UInt8], _ status: HTTPResponse.Status = .ok, _ headers: HTTPFields = [:]
  ) -> Response {
    var headers = headers
    headers[.contentType] = "application/json"
    headers[.cacheControl] = "no-store"
    return Response(status: status, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(bytes: bytes)))
  }
}

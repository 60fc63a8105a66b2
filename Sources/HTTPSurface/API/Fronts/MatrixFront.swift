// Matrix's Push Gateway API: what Sygnal does for homeservers (spec.matrix.org/latest/push-gateway-api).
//
// A homeserver repeats a request that fails, for a day, and sends this phone nothing else meanwhile; it deletes the pusher
// of a push key that is rejected. So a push key is rejected only if a provider has called its token dead. An error is
// answered only if its cause may be gone at the next try: the database, the limits, the gateway's configuration. What
// members of a room have written never causes one.

internal import HTTPTypes
internal import Hummingbird
internal import Logging
internal import Queue
internal import Runtime
internal import Settings

/// Answers a homeserver's notifications.
struct MatrixFront: Sendable {
  let database: PostgresPool
  let enqueuer: APIEnqueuer
  let backlog: APIBacklog
  let apps: APIApps
  let clock: any GatewayClock

  /// A device whose token could be read.
  private struct Phone {
    let device: MatrixNotification.Device
    let target: APIApps.Target
    let token: String
    var provider: String { target.kind == .fcm ? "fcm" : "apns" }
  }

  /// The first device of each kind of fault, by its position in the request, and the first failure.
  private struct Faults {
    var unknownApp: Int?
    var malformedKey: Int?
    var problem: APIProblem?
  }

  func notify(_ body: [UInt8], _ trace: Traceparent?) async throws(APIProblem) -> FrontAnswer {
    let notification: MatrixNotification
    do {
      notification = try MatrixNotification(JSONScanner(body))
    } catch let error as JSONError {
      // The content of an event may be nested as deeply as a member of the room likes.
      guard error.reason == .tooDeep else { throw .notJSON(error) }
      return Self.answer(rejected: [], callIDs: [])
    } catch {
      throw error as? APIProblem ?? .broken
    }
    var faults = Faults()
    let phones = phones(of: notification, &faults)
    let dead = try await deadTokens(phones)
    var callIDs: [String] = []
    for phone in phones where !dead.contains(phone) {
      let plan = MatrixPlan(
        notification: notification, target: phone.target, token: phone.token, traceparent: trace?.text)
      do throws(APIProblem) {
        if let callID = try await perform(plan.action(at: clock.wallMilliseconds()), phone.target.app) {
          callIDs.append(callID)
        }
      } catch {
        // The other phones need not wait for the next try.
        faults.problem = faults.problem ?? error
      }
    }
    if let problem = faults.problem { throw problem }
    if let index = faults.unknownApp { throw .unknownAppID(index) }
    if let index = faults.malformedKey { throw .malformedPushKey(index) }
    return Self.answer(rejected: phones.filter(dead.contains).map(\.device.pushKey), callIDs: callIDs)
  }

  private func phones(of notification: MatrixNotification, _ faults: inout Faults) -> [Phone] {
    var phones: [Phone] = []
    for (index, device) in notification.devices.enumerated() {
      guard let target = apps.target(of: device.appID) else {
        faults.unknownApp = faults.unknownApp ?? index
        continue
      }
      let token =
        switch target.kind {
        case .voip, .apns: TokenIdentity.apnsToken(ofPushKey: device.pushKey)
        case .fcm: TokenIdentity.isFCMToken(device.pushKey) ? device.pushKey : nil
        }
      guard let token else {
        faults.malformedKey = faults.malformedKey ?? index
        continue
      }
      phones.append(Phone(device: device, target: target, token: token))
    }
    return phones
  }

  // MARK: - Dead tokens

  private struct DeadTokens {
    var tokens: Set<[String]> = []
    func contains(_ phone: Phone) -> Bool { tokens.contains([phone.target.app, phone.token]) }
  }

  /// A token that the client has set again after a provider had called it dead is alive: it is tried once more.
  private func deadTokens(_ phones: [Phone]) async throws(APIProblem) -> DeadTokens {
    var dead = DeadTokens()
    for app in Set(phones.map(\.target.app)).sorted() {
      let those = phones.filter { $0.target.app == app }
      var parameters = PostgresParameters()
      parameters.append(app)
      parameters.append(texts: those.map { Array($0.provider.utf8) })
      parameters.append(texts: those.map { Array($0.token.utf8) })
      parameters.append(timestamps: those.map { $0.device.setAtMicroseconds })
      let rows = try await database.query(
        APIStatements.deadTokens, parameters, for: .call(APIClient(keyID: nil, app: app)))
      for row in 0..<rows.rowCount { dead.tokens.insert([app, rows.text(row, 0)]) }
    }
    return dead
  }

  // MARK: - Actions

  /// - Returns: the id of the call that was enqueued or changed; nil if there is none.
  private func perform(_ action: MatrixPlan.Action, _ app: String) async throws(APIProblem) -> String? {
    let client = APIClient(keyID: nil, app: app)
    switch action {
    case .nothing: return nil
    case .enqueue(let call):
      do throws(APIProblem) {
        try await backlog.check(app)
        return try await enqueuer.enqueue(call, of: client).callID
      } catch {
        // The homeserver repeats what it enqueued long ago.
        guard error != .ringsNoLonger else { return nil }
        guard error.status == .unprocessableContent else { throw error }
        guard error.field == "app" else {
          // A phone cannot be told of this event, and no repetition would change that.
          database.logger.error(
            "A homeserver's event cannot be sent", metadata: ["app": "\(app)", "reason": "\(error.field ?? "")"])
          return nil
        }
        throw .unavailable(
          "unserved-app", "no gateway serves the app of this app_id yet; try again", retryAfterSeconds: 5)
      }
    case .answer(let callID): return try await change(APIStatements.answerCall, callID, [nil, nil], client)
    case .decline(let callID, let userID):
      return try await change(APIStatements.declineCall, callID, [userID, nil, nil], client)
    case .end(let callID, let reason): return try await change(APIStatements.endCall, callID, [reason], client)
    }
  }

  /// A call that is not known did not ring here, so there is nothing to do.
  private func change(
    _ statement: PostgresStatement, _ callID: String, _ arguments: [String?], _ client: APIClient
  ) async throws(APIProblem) -> String? {
    var parameters = PostgresParameters()
    parameters.append(callID)
    parameters.append(client.app)
    for argument in arguments { parameters.append(argument) }
    do throws(APIProblem) {
      return try await database.query(statement, parameters, for: .call(client)).bool(0, 0) ? callID : nil
    } catch {
      guard error == .noSuchCall || error.status == .unprocessableContent else { throw error }
      return nil
    }
  }

  private static func answer(rejected: [String], callIDs: [String]) -> FrontAnswer {
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("rejected")
    writer.beginArray()
    for pushKey in rejected { writer.string(pushKey) }
    writer.endArray()
    writer.endObject()
    return FrontAnswer(body: writer.bytes, callIDs: callIDs, refusedTokens: rejected.count)
  }
}

extension MatrixNotification.Device {
  /// Nil if it is not known, or not a time.
  fileprivate var setAtMicroseconds: Int64? {
    guard let setAtSeconds, 0...9_999_999_999 ~= setAtSeconds else { return nil }
    return setAtSeconds * 1_000_000
  }
}

extension APIProblem {
  /// 404: the configuration has no app for this pusher. Not a rejection, which would delete the pushers of a whole app because
  /// of a typing error in a file.
  fileprivate static func unknownAppID(_ index: Int) -> APIProblem {
    APIProblem(
      status: .notFound, name: "unknown-app-id", detail: "no app of the gateway has this app_id: see apps.APP.matrix",
      field: "notification.devices[\(index)].app_id")
  }

  fileprivate static func malformedPushKey(_ index: Int) -> APIProblem {
    .invalid(
      "notification.devices[\(index)].pushkey",
      "is not a token of the kind (voip, apns or fcm) under which apps.APP.matrix lists this app_id")
  }
}

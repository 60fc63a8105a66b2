// Asks a provider, over the gateway's own connections, whether it accepts the credentials of an app: with a push to a made-up token.
// A provider looks at the credentials first, so an answer about the token means that they are accepted. Nobody gets the push.
//
// A push service of browsers is not asked: each subscription is bound to one key, so a made-up one says nothing.

import Dispatching
import Foundation
import Logging
import Providers
import PushModel
import Queue
import Runtime
import Settings

struct ProviderCheck {
  let app: GatewayConfiguration.App
  let kind: ProviderKind
  let configuration: GatewayConfiguration
  /// How long it may take.
  let limit: Nanoseconds
  let loop: EventLoop

  /// What is asked: an address, and the environment that it serves.
  private struct Question {
    let subject: String
    let url: GatewayConfiguration.ProviderURL
    var environment = PushEnvironment.production
  }

  /// What the provider reports.
  private enum Event: Sendable {
    case results([PushResult])
    /// Something went wrong on the way; the text says what.
    case trouble(String)
    case timeIsUp
  }

  private var questions: [Question] {
    let path = "apps.\(app.name).\(kind.rawValue)"
    switch kind {
    case .apns:
      guard let apns = app.apns else { return [] }
      return [
        Question(subject: "\(path).production_url", url: apns.productionURL),
        Question(subject: "\(path).sandbox_url", url: apns.sandboxURL, environment: .sandbox),
      ]
    case .fcm: return app.fcm.map { [Question(subject: path, url: $0.url)] } ?? []
    case .expo: return app.expo.map { [Question(subject: path, url: $0.url)] } ?? []
    case .webpush: return []
    }
  }

  func run() async -> [ConnectCheck] {
    let questions = questions
    let (events, report) = AsyncStream<Event>.makeStream()
    let logger = Logger(label: "check") { _ in TroubleLog { report.yield(.trouble($0)) } }
    var factory = ProviderFactory(
      caFile: configuration.caFile, privacy: configuration.secretPrivacy, loop: loop, logger: logger,
      tokenStore: { _ in OwnTokens() })
    let provider: any PushProvider
    do {
      provider = try factory.make(kind, for: app).provider
    } catch {
      return [ConnectCheck(subject: "apps.\(app.name).\(kind.rawValue)", finding: .refused, text: "\(error)")]
    }
    let deadline = loop.now + limit
    await provider.start { if case .results(let results) = $0 { report.yield(.results(results)) } }
    await provider.send(questions.enumerated().map { request($1, tag: UInt64($0), deadline) })
    let timer = Task { [limit] in
      // An answer to a request that was sent may come a little later than its deadline.
      try? await Task.sleep(for: .milliseconds(limit.milliseconds + 1_000))
      report.yield(.timeIsUp)
    }
    var results: [Int: PushResult] = [:]
    var trouble: String?
    var refusal: String?
    for await event in events {
      switch event {
      case .results(let new):
        for result in new {
          // It has waited for a connection for as long as a push may, which is shorter than a check.
          if case .refused = result.outcome, loop.now < deadline {
            await provider.send([request(questions[Int(result.tag)], tag: result.tag, deadline)])
          } else {
            results[Int(result.tag)] = result
          }
        }
      case .trouble(let text):
        trouble = text
        let condition = await provider.condition
        if condition.isWithoutToken { refusal = condition.refusal }
      case .timeIsUp: break
      }
      if results.count == questions.count || refusal != nil { break }
      if case .timeIsUp = event { break }
    }
    timer.cancel()
    await provider.shutDown(by: loop.now)
    return withOneEnvironment(
      questions.enumerated().map { index, question in
        if let refusal, results[index] == nil { return refused(question, refusal) }
        return check(question, results[index], trouble)
      })
  }

  private func request(_ question: Question, tag: UInt64, _ deadline: Instant) -> PushRequest {
    let (token, body) =
      switch kind {
      case .apns: (String(repeating: "0", count: 64), #"{"aps":{}}"#)
      case .fcm: ("none", "{}")
      case .expo, .webpush: ("ExponentPushToken[\(String(repeating: "0", count: 22))]", #"{"data":{}}"#)
      }
    return PushRequest(
      tag: tag, deliveryID: DeliveryID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)),
      kind: .invite, environment: question.environment, token: Array(token.utf8),
      body: Array(body.utf8), collapseID: nil, deadline: deadline,
      expiresAtMilliseconds: SystemClock().wallMilliseconds())
  }

  // MARK: - Answers

  private func check(_ question: Question, _ result: PushResult?, _ trouble: String?) -> ConnectCheck {
    guard let result else { return unreachable(question, trouble) }
    switch result.outcome {
    case .accepted, .tokenInvalid: return good(question)
    // The token or the payload is at fault, which are made up.
    case .rejected(let reason) where kind == .expo || ["INVALID_ARGUMENT", "PayloadEmpty"].contains(reason):
      return good(question)
    case .rejected(let reason), .unauthorized(let reason): return refused(question, reason)
    case .throttled(let reason, _, _), .unavailable(let reason, _):
      guard result.status != 0 else { return unreachable(question, trouble ?? "\(reason): \(Self.remedy)") }
      return ConnectCheck(
        subject: question.subject, finding: .unreachable,
        text:
          "\(question.url) answers \(result.status) (\(reason)), which says nothing about the credentials: try again")
    case .refused, .deferred, .unknown, .expired: return unreachable(question, trouble)
    }
  }

  private func good(_ question: Question) -> ConnectCheck {
    let what =
      switch kind {
      case .apns: "key_id \(app.apns?.keyID ?? ""), team_id and topic \(app.apns?.topic ?? "")"
      case .fcm: "the service account and its project"
      case .expo, .webpush: app.expo?.accessTokenFile == nil ? "pushes without an access token" : "the access token"
      }
    return ConnectCheck(subject: question.subject, finding: .good, text: "\(question.url) accepts \(what)")
  }

  private func refused(_ question: Question, _ reason: String) -> ConnectCheck {
    let sentence = RefusalSentence.of(LaneName(app: app.name, provider: kind), in: app)
    return ConnectCheck(subject: question.subject, finding: .refused, text: sentence(.allPushes, reason))
  }

  private static let remedy = "check the network, and whether a proxy is needed"

  private func unreachable(_ question: Question, _ trouble: String?) -> ConnectCheck {
    ConnectCheck(
      subject: question.subject, finding: .unreachable,
      text: trouble.map { "\(question.url) cannot be reached: \($0)" }
        ?? "\(question.url) did not answer within \(limit.milliseconds / 1_000) s: \(Self.remedy)")
  }

  /// A key may be made for one of the two environments. That is no fault while no phone is in the other one.
  private func withOneEnvironment(_ checks: [ConnectCheck]) -> [ConnectCheck] {
    guard kind == .apns, checks.contains(where: { $0.finding == .good }) else { return checks }
    return checks.map { check in
      guard check.finding == .refused, check.text.contains("BadEnvironmentKey") else { return check }
      var check = check
      check.finding = .limited
      return check
    }
  }
}

/// Passes on why connections and tokens fail: the field `error` of warnings and errors.
private struct TroubleLog: LogHandler {
  let report: @Sendable (String) -> Void
  var logLevel = Logger.Level.warning
  var metadata: Logger.Metadata = [:]

  init(report: @escaping @Sendable (String) -> Void) { self.report = report }

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  func log(event: LogEvent) {
    if let error = event.metadata?["error"] { report("\(error)") }
  }
}

/// Keeps no token: each check makes its own.
private struct OwnTokens: SharedTokenStore {
  func current(_ identity: String) async throws -> ProviderToken? { nil }

  func offer(_ token: ProviderToken, as identity: String, ageMin: Nanoseconds) async throws -> ProviderToken { token }
}

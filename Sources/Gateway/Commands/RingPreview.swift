// The request of a push, without a gateway: planned and written by what plans and writes the requests of one.

import Console
import Dialects
import Logging
import Providers
import PushModel
import Queue
import Runtime
import Settings

/// Shows what would be sent for the pushes of one app.
struct RingPreview {
  private let configuration: GatewayConfiguration
  private let app: GatewayConfiguration.App

  /// - Throws: `ConfigurationError` if the configuration, or a key file, cannot be used; `CommandFailure` if it has no such app.
  init(app name: String, _ source: ConfigurationFile) throws {
    configuration = try source.load()
    guard let app = configuration.apps.first(where: { $0.name == name }) else {
      throw CommandFailure(
        "the configuration has no app \(name), but \(configuration.apps.map(\.name).joined(separator: ", "))")
    }
    try CredentialCheck.require(configuration, from: source)
    self.app = app
  }

  var ringSeconds: Int { app.ringSeconds }

  /// Prints the request of each push.
  func show(_ deliveries: [RingDelivery]) async throws {
    for delivery in deliveries { StandardOutput.write(try await text(delivery)) }
  }

  private func text(_ delivery: RingDelivery) async throws -> String {
    guard app.providers.contains(delivery.provider) else {
      throw CommandFailure("app \(app.name) has no \(delivery.provider.rawValue) in the configuration")
    }
    let loop = EventLoop(name: "preview")
    var factory = ProviderFactory(
      caFile: configuration.caFile, privacy: configuration.secretPrivacy, loop: loop,
      logger: Logger(label: "ring", factory: { _ in SwiftLogNoOpLogHandler() }))
    let provider = try factory.make(
      delivery.provider, delivery.provider.services[0], for: app
    ).provider
    let now = loop.now
    let planned: PushRequest
    switch CallPlanner(app, delivery.provider).plan(delivery.claimed(now), now: now, tag: 0) {
    case .success(let request): planned = request
    case .failure(.missingField(let name)):
      throw CommandFailure("the dialect \(app.dialect.name) needs \(name) in the payload: give it with --payload")
    case .failure(let failure): throw CommandFailure("there is no push for it: \(failure.reason)")
    }
    guard let preview = await provider.preview(planned) else {
      throw CommandFailure(
        "the subscription's push service is known to the database alone: give the subscription with --token")
    }
    let note = delivery.provider == .webpush ? "(encrypted when it is sent)\n" : ""
    return "POST \(preview.url)\n" + preview.headers.map { "\($0.name): \($0.value)\n" }.joined()
      + "\n\(note)\(String(decoding: preview.body, as: UTF8.self))\n"
  }
}

extension RingDelivery {
  /// As a claim brings it, at the moment when it was enqueued.
  fileprivate func claimed(_ now: Instant) -> Delivery {
    let payload = Array(call.payload.utf8)
    return Delivery(
      lease: DeliveryLease(
        outboxID: outboxID, pushNumber: number, lease: 1, createdAtMicroseconds: call.createdAtMicroseconds),
      lane: 0, attempt: 1, kind: .invite, environment: environment, platform: platform, userID: Array(userID.utf8),
      token: Array(device.utf8), locale: locale.map { Array($0.utf8) }, callKind: Array("incoming_call".utf8),
      callID: Array(call.id.utf8), payload: payload, createdAtMicroseconds: call.createdAtMicroseconds,
      deadlineAtMicroseconds: call.createdAtMicroseconds + Int64(call.ringSeconds) * 1_000_000,
      deadline: now + .seconds(Int64(call.ringSeconds)))
  }
}

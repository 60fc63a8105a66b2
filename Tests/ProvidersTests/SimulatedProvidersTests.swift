// FCM and Expo with the files of an installation, sent to the strict simulators over real TLS.

import Logging
import PushModel
import Runtime
import Simulators
import TestTime
import Testing

@testable import Providers

@Suite(.timeLimit(.minutes(10))) struct SimulatedProvidersTests {
  private func request(_ tag: Int, token: String, body: String) -> PushRequest {
    PushRequest(
      tag: UInt64(tag), deliveryID: DeliveryID(high: 1, low: UInt64(tag)), kind: .invite, environment: .production,
      token: Array(token.utf8), body: Array(body.utf8), collapseID: nil,
      deadline: SystemClock().now() + .seconds(600),
      expiresAtMilliseconds: SystemClock().wallMilliseconds() + 600_000)
  }

  @Test func `the FCM simulator accepts pushes with an access token for the service account's file`() async throws {
    let suite = try await SimulatorSuite.start()
    let account = try FCMServiceAccount.load(file: suite.material.serviceAccountFile)
    let loop = EventLoop.paced("fcm-test", with: [suite.fcm.loop])
    let endpoint = try HTTP2Endpoint(
      url: suite.endpoints.fcm, tls: .client(caFile: suite.material.authorityFile))
    let provider = HTTP2Provider(
      FCMConfiguration(projectID: account.projectID, endpoint: endpoint),
      tokens: FCMTokenSource(account: account, caFile: suite.material.authorityFile, loop: loop), loop: loop,
      logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    let reports = ProviderReports()
    await provider.start { reports.receive($0) }
    await reports.capacity { $0 > 0 }

    let body = #"{"callId":"c1","fromId":"u1","body":"{\"callId\":\"c1\",\"from\":\"u1\"}"}"#
    await provider.send(
      (0..<500).map { request($0, token: "android-token-\($0)", body: body) }
        + [request(500, token: "fault-UNREGISTERED", body: body)])
    let results = await reports.results(501)
    for tag in 0..<500 {
      guard case .accepted(.some) = results[UInt64(tag)]?.outcome else {
        Issue.record("push \(tag): \(String(describing: results[UInt64(tag)]))")
        continue
      }
    }
    #expect(results[500]?.outcome == .tokenInvalid(reason: "UNREGISTERED", since: nil))
    let counters = await suite.fcm.counters
    #expect(counters.accepted == 500)
    #expect(counters.violations.isEmpty)
    #expect(counters.refused == ["UNREGISTERED": 1])

    await provider.shutDown(by: SystemClock().now() + .seconds(5))
    loop.stop()
    await suite.stop()
  }

  @Test func `the Expo simulator accepts batches with the access token of its file`() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.requiresExpoAccessToken = true
    let suite = try await SimulatorSuite.start(configuration)
    let provider = ExpoProvider(
      configuration: ExpoConfiguration(
        url: suite.endpoints.expo,
        accessToken: try ExpoConfiguration.readAccessToken(file: suite.material.expoAccessTokenFile),
        caFile: suite.material.authorityFile), loop: .paced("expo-test", with: [suite.expo.loop]))
    let reports = ProviderReports()
    await provider.start { reports.receive($0) }

    let body = #"{"title":"Incoming call","sound":"default","data":{"callId":"c1","from":"u1"}}"#
    await provider.send(
      (0..<350).map {
        request($0, token: "ExponentPushToken[\($0 % 2 == 0 ? "project-other-" : "")abcdefghijklmnop\($0)]", body: body)
      })
    let results = await reports.results(350)
    for tag in 0..<350 {
      guard case .accepted(.some) = results[UInt64(tag)]?.outcome else {
        Issue.record("push \(tag): \(String(describing: results[UInt64(tag)]))")
        continue
      }
    }
    let counters = await suite.expo.counters
    #expect(counters.accepted == 350)
    #expect(counters.violations.isEmpty)

    await provider.shutDown(by: SystemClock().now() + .seconds(5))
    provider.loop.stop()
    await suite.stop()
  }
}

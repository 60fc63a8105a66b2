// Tests of every error of Expo's push service, in tickets, in receipts and for whole requests, from the simulator over the
// network to its outcome.

import Runtime
import Simulators
import TestTime
import Testing

@testable import Providers

private let (pushErrors, requestErrors) = (ExpoReasonRow.ofPushes, ExpoReasonRow.ofRequests)

private let rows: [ReasonCode] =
  pushErrors.map { ReasonCode("ticket \($0.code)", .reason($0.code), .outcome($0.outcome, status: 200)) }
  + pushErrors.map { ReasonCode("receipt \($0.code)", Fault(.receipt($0.code)), .accepted) }
  + requestErrors.map {
    ReasonCode("\($0.status) \($0.code)", .reason($0.code, retryAfter: 7), .outcome($0.outcome, status: $0.status))
  } + [
    ReasonCode(
      "500 INTERNAL_SERVER_ERROR", .reason("INTERNAL_SERVER_ERROR"),
      .outcome(.unavailable(reason: "INTERNAL_SERVER_ERROR", after: nil), status: 500)),
    ReasonCode(
      "503 SERVICE_UNAVAILABLE", .reason("SERVICE_UNAVAILABLE", retryAfter: 3),
      .outcome(.unavailable(reason: "SERVICE_UNAVAILABLE", after: .seconds(3)), status: 503)),
    ReasonCode("502 HTML", Fault(.html), .outcome(.unavailable(reason: "HTTP502", after: nil), status: 502)),
    ReasonCode(
      "500 half a body", Fault(.malformed), .outcome(.unavailable(reason: "HTTP500", after: nil), status: 500)),
  ]

private func token(_ index: Int) -> String { "ExponentPushToken[row-\(index)-]" }

private let body = #"{"title":"Incoming call","sound":"default","data":{"callId":"c1"}}"#

@Suite("Expo codes: over the network", .simulators(.expo, rows, token: token), .serialized, .timeLimit(.minutes(10)))
struct ReasonCodesExpoTests {
  private func provider(_ change: (inout ExpoConfiguration) -> Void = { _ in }) throws -> ExpoProvider {
    let simulators = try #require(SimulatorsTrait.simulators)
    var configuration = ExpoConfiguration(
      url: simulators.endpoints.expo, caFile: simulators.material.authorityFile)
    change(&configuration)
    return ExpoProvider(configuration: configuration, loop: .paced("expo-test", with: [simulators.expo.loop]))
  }

  @Test(arguments: rows.indices.map { RowIndex($0, rows) })
  func `every answer of Expo has its documented outcome`(index: RowIndex) async throws {
    rows[index.place].check(try await provider().result(ofPushTo: token(index.place), body: body))
  }

  @Test(arguments: pushErrors.indices)
  func `every receipt has its documented outcome`(index: Int) async throws {
    let provider = try provider()
    let reports = ProviderReports()
    await provider.start { reports.receive($0) }
    await provider.send([
      .test(0, token: token(pushErrors.count + index), body: body),
      .test(1, token: "ExponentPushToken[fine]", body: body),
    ])
    let results = await reports.results(2)
    guard case .accepted(let bad?)? = results[0]?.outcome, case .accepted(let good?)? = results[1]?.outcome else {
      Issue.record("not accepted")
      return
    }
    let answer = await provider.receipts(of: [bad, good, "00000000-0000-7000-8000-000000000000"])
    #expect(answer == .receipts([bad: pushErrors[index].outcome, good: .accepted(messageID: nil)]))
    await provider.shutDown(by: SystemClock().now() + .seconds(5))
    provider.loop.stop()
  }

  @Test(arguments: requestErrors.indices)
  func `every refusal of a whole receipts request has its documented outcome`(index: Int) async throws {
    let provider = try provider()
    await provider.start { _ in }
    let (code, outcome) = (requestErrors[index].code, requestErrors[index].outcome)
    #expect(await provider.receipts(of: ["a", "fault-\(code)-7"]) == .failed(outcome))
    #expect(await provider.receipts(of: ["fault-html"]) == .failed(.unavailable(reason: "HTTP502", after: nil)))
    await provider.shutDown(by: SystemClock().now() + .seconds(5))
    provider.loop.stop()
  }

  @Test func `in a request with many projects only the messages that Expo refuses by themselves fail`() async throws {
    let mixed = try #require(rows.firstIndex { $0.name.hasSuffix("PUSH_TOO_MANY_EXPERIENCE_IDS") })
    let results = try await provider().results(
      ofPushesTo: (0..<9).map { $0 == 4 ? token(mixed) : "ExponentPushToken[plain-\($0)]" }, body: body)
    for tag in UInt64(0)..<9 {
      if tag == 4 {
        #expect(results[tag]?.outcome == .rejected(reason: "PUSH_TOO_MANY_EXPERIENCE_IDS"))
      } else {
        ReasonCode("", Fault(.accept), .accepted).check(results[tag])
      }
    }
  }

  @Test func `requests that are too long for Expo are sent in halves`() async throws {
    let provider = try provider {
      $0.messagesMax = 250
      $0.requestsMax = 1
    }
    let results = await provider.results(
      ofPushesTo: (0..<600).map { "ExponentPushToken[many-\($0)]" }, body: body)
    for result in results.values { ReasonCode("", Fault(.accept), .accepted).check(result) }
    #expect(results.count == 600)
  }
}

// Shared by the tests of the reason codes: simulators with a fault for each row, and a push for each row. The rows were
// written by hand from docs/protocols.md; other tests check that the tables in the sources contain exactly these.

import Logging
import PushModel
import Runtime
import Simulators
import Testing

@testable import Providers

/// An answer of a provider, and the expected outcome of the push.
struct ReasonCode: Sendable, CustomTestStringConvertible {
  enum Expected: Sendable {
    case outcome(PushOutcome, status: UInt16)
    /// Accepted in the end, whatever its message id: the answer costs no attempt.
    case accepted
  }

  let name: String
  let fault: Fault
  /// The number of requests that get the fault; nil for all of the row.
  let count: Int?
  let expected: Expected

  init(_ name: String, _ fault: Fault, count: Int? = nil, _ expected: Expected) {
    self.name = name
    self.fault = fault
    self.count = count
    self.expected = expected
  }

  var testDescription: String { name }

  /// Checks a result, and that the simulator used the fault.
  func check(_ result: PushResult?, sourceLocation: SourceLocation = #_sourceLocation) {
    switch expected {
    case .outcome(let outcome, let status):
      #expect(result?.outcome == outcome, sourceLocation: sourceLocation)
      #expect(result?.status == status, sourceLocation: sourceLocation)
    case .accepted:
      guard case .accepted(.some)? = result?.outcome else {
        Issue.record("\(String(describing: result?.outcome))", sourceLocation: sourceLocation)
        return
      }
      #expect(result?.status == 200, sourceLocation: sourceLocation)
    }
    #expect(result?.sentAt != nil, sourceLocation: sourceLocation)
  }
}

/// Starts simulators before a suite and stops them after it.
struct SimulatorsTrait: SuiteTrait, TestScoping {
  @TaskLocal static var simulators: SimulatorSuite?

  let rules: [FaultRule]

  func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
  ) async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan(rules)
    let suite = try await SimulatorSuite.start(configuration)
    try await Self.$simulators.withValue(suite) { try await function() }
    await suite.stop()
  }
}

extension Trait where Self == SimulatorsTrait {
  /// Simulators in which the token of each row gets the fault of the row.
  static func simulators(
    _ provider: SimulatedProvider, _ rows: [ReasonCode], token: (Int) -> String
  ) -> SimulatorsTrait {
    SimulatorsTrait(
      rules: rows.enumerated().map { index, row in
        FaultRule(provider: provider, tokenPrefix: token(index), fault: row.fault, count: row.count)
      })
  }
}

extension PushProvider {
  /// Starts, sends one push to a token, shuts down.
  func result(ofPushTo token: String, body: String) async -> PushResult? {
    await results(ofPushesTo: [token], body: body)[0]
  }

  /// Starts, sends a push to each token at once, shuts down. Returns the results in the order of the tokens.
  func results(ofPushesTo tokens: [String], body: String) async -> [UInt64: PushResult] {
    let reports = ProviderReports()
    start { reports.receive($0) }
    send(tokens.enumerated().map { .test($0.offset, token: $0.element, body: body) })
    let results = await reports.results(tokens.count)
    await shutDown(by: SystemClock().now() + .seconds(5))
    loop.stop()
    return results
  }
}

extension PushRequest {
  /// An invite to a device that rings for ten minutes, which is longer than a busy machine takes.
  static func test(_ tag: Int, token: String, body: String) -> PushRequest {
    PushRequest(
      tag: UInt64(tag), deliveryID: DeliveryID(high: 1, low: UInt64(tag)), kind: .invite, environment: .production,
      token: Array(token.utf8), body: Array(body.utf8), collapseID: nil,
      deadline: SystemClock().now() + .seconds(600),
      expiresAtMilliseconds: SystemClock().wallMilliseconds() + 600_000)
  }
}

let silent = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }

/// The index of a row, which test reports show by the row's name.
struct RowIndex: Sendable, CustomTestStringConvertible {
  let place: Int
  let testDescription: String

  init(_ place: Int, _ rows: [ReasonCode]) {
    self.place = place
    testDescription = rows[place].name
  }
}

// One row of the hostile suite: what a provider does, what the phone experiences, and the time limit.

import HTTP2TestSupport
import Runtime

/// What a provider does, and the required result of a single call.
struct HostileBehaviour: Sendable {
  typealias Provider = ScriptedPeer.Provider

  /// The required result in push.delivery_history.
  struct Expectation: Sendable {
    var outcome: String
    /// Maximum number of seconds from the commit to the acceptance, or to the end.
    var within: Double
    /// Number of attempts in the history. A request that the provider certainly has not processed is not counted.
    var attempts: ClosedRange<Int>
    /// Maximum number of times that the provider may have seen the complete request.
    var requestsMax: Int

    /// The phone rings.
    static func rings(_ within: Double, attempts: ClosedRange<Int> = 1...1, requestsMax: Int? = nil) -> Self {
      Self(
        outcome: "delivered", within: within, attempts: attempts, requestsMax: requestsMax ?? attempts.upperBound)
    }

    /// The phone does not ring, and the history says so.
    static func ends(_ outcome: String, _ within: Double, attempts: ClosedRange<Int>, requestsMax: Int? = nil) -> Self {
      Self(outcome: outcome, within: within, attempts: attempts, requestsMax: requestsMax ?? attempts.upperBound)
    }
  }

  var name: String
  var providers = Provider.allCases
  /// What the phone experiences, in the words of docs/reliability.md.
  var phone: String
  var expected: Expectation
  /// Expectations that differ for a provider.
  var differing: [Provider: Expectation] = [:]
  var scope = ScriptedPeer.Scope.connections(1)
  var ringSeconds = 30
  /// Whether the peer writes as fast as it can. Such a behaviour gets a gateway of its own.
  var isFlood = false
  /// Maximum number of connections that the gateway may open meanwhile, beside two a second.
  var connectionsMax = 12
  /// Limits for a flood: CPU seconds of the gateway (a debug build), and growth in megabytes.
  var cpuSecondsMax = 6.0
  var megabytesMax = 64.0
  /// Prepares the peer after the behaviour was set.
  var prepare: @Sendable (ScriptedPeer) -> Void = { _ in }
  var script: PeerScript

  init(
    _ name: String, _ phone: String, _ expected: Expectation, scope: ScriptedPeer.Scope = .connections(1),
    _ adjust: (inout PeerScript) -> Void
  ) {
    self.name = name
    self.phone = phone
    self.expected = expected
    self.scope = scope
    script = PeerScript()
    adjust(&script)
  }

  /// Whether `make test` runs the behaviour. `make test-hostile` runs all.
  var isQuick: Bool { !isFlood && name.hasPrefix("GOAWAY") }

  func expectation(_ provider: Provider) -> Expectation { differing[provider] ?? expected }

  func with(_ change: (inout Self) -> Void) -> Self {
    var copy = self
    change(&copy)
    return copy
  }

  /// Limits the row to some providers.
  func only(_ providers: Provider...) -> Self { with { $0.providers = providers } }

  func `for`(_ provider: Provider, _ expected: Expectation) -> Self { with { $0.differing[provider] = expected } }
}

extension HostileBehaviour {
  /// Every row, in the order of the table.
  static let all = connecting + idle + cutting + refusing + answering + framing + flooding
}

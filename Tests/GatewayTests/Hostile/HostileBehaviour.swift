// One row of the hostile suite: what a provider does, what the phone experiences, and the bound.

import HTTP2TestSupport
import Runtime

/// What a provider does, and what must come of one lone call.
struct HostileBehaviour: Sendable {
  typealias Provider = ScriptedPeer.Provider

  /// What must be in history.
  struct Expectation: Sendable {
    var outcome: String
    /// Seconds from the commit to the provider's yes, or to the end.
    var within: Double
    /// Attempts, as history counts them: what the provider certainly has not processed is none.
    var attempts: ClosedRange<Int>
    /// How often the provider may have seen the request whole.
    var requestsMax: Int

    /// The phone rings.
    static func rings(_ within: Double, attempts: ClosedRange<Int> = 1...1, requestsMax: Int? = nil) -> Self {
      Self(
        outcome: "delivered", within: within, attempts: attempts, requestsMax: requestsMax ?? attempts.upperBound)
    }

    /// The phone stays silent, and history says so.
    static func ends(_ outcome: String, _ within: Double, attempts: ClosedRange<Int>, requestsMax: Int? = nil) -> Self {
      Self(outcome: outcome, within: within, attempts: attempts, requestsMax: requestsMax ?? attempts.upperBound)
    }
  }

  var name: String
  var providers = Provider.allCases
  /// What the phone experiences, as docs/reliability.md says it.
  var phone: String
  var expected: Expectation
  /// Where a provider's differs.
  var differing: [Provider: Expectation] = [:]
  var scope = ScriptedPeer.Scope.connections(1)
  var ringSeconds = 30
  /// Whether the peer writes as fast as it can; such a behaviour is alone with its gateway's neighbour.
  var isFlood = false
  /// How many connections the gateway may make meanwhile.
  var connectionsMax = 12
  /// Bound of a flood: CPU seconds of the gateway (a debug build), and megabytes it may grow by.
  var cpuSecondsMax = 6.0
  var megabytesMax = 64.0
  /// Done with the whole peer after it was armed.
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

  /// Whether `make test` runs it, too; `make test-hostile` runs all.
  var isQuick: Bool { !isFlood && name.hasPrefix("GOAWAY") }

  func expectation(_ provider: Provider) -> Expectation { differing[provider] ?? expected }

  func with(_ change: (inout Self) -> Void) -> Self {
    var copy = self
    change(&copy)
    return copy
  }

  /// Whom it concerns.
  func only(_ providers: Provider...) -> Self { with { $0.providers = providers } }

  func `for`(_ provider: Provider, _ expected: Expectation) -> Self { with { $0.differing[provider] = expected } }
}

extension HostileBehaviour {
  /// Every row, in the order of the table.
  static let all = connecting + idle + cutting + refusing + answering + framing + flooding
}

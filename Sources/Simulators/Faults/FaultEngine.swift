// Decides, request by request, whether a fault of the plan is due. Without chance: the same requests meet the same
// faults.

internal import Runtime

/// The plan's rules for one simulator, with their counts.
struct FaultEngine: Sendable {
  private struct Armed: Sendable {
    var rule: FaultRule
    var prefix: [UInt8]
    var seen = 0
    var fired = 0
    /// How much of a fault has come together; at 1 one is due.
    var credit = 0.0
  }

  private var armed: [Armed] = []

  /// - Parameters:
  ///   - provider: whose rules are taken over.
  ///   - environment: APNs: the listener's; rules for the other one are left out.
  init(_ plan: FaultPlan, for provider: SimulatedProvider, environment: String = "") {
    for rule in plan.rules where rule.provider == provider {
      if let only = rule.environment, only != environment { continue }
      armed.append(Armed(rule: rule, prefix: Array((rule.tokenPrefix ?? "").utf8)))
    }
  }

  var isEmpty: Bool { armed.isEmpty }

  /// The fault that befalls a request for this token, if any: the first rule that is due.
  mutating func fault(for token: ArraySlice<UInt8>) -> Fault? {
    for index in armed.indices where isDue(&armed[index], token) {
      var fault = armed[index].rule.fault
      if fault.stallMax > .zero { fault.delay = fault.delay + Self.stall(of: token, within: fault.stallMax) }
      return fault
    }
    return nil
  }

  /// Between nothing and `longest`, evenly over all tokens (FNV-1a).
  private static func stall(of token: ArraySlice<UInt8>, within longest: Nanoseconds) -> Nanoseconds {
    let hash = token.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01B3 }
    return .milliseconds(Int64((hash >> 16) % UInt64(max(longest.milliseconds, 1))))
  }

  private func isDue(_ armed: inout Armed, _ token: ArraySlice<UInt8>) -> Bool {
    guard armed.prefix.isEmpty || token.hasPrefix(armed.prefix) else { return false }
    armed.seen += 1
    guard armed.seen > armed.rule.after else { return false }
    if let count = armed.rule.count, armed.fired >= count { return false }
    armed.credit += armed.rule.share
    guard armed.credit >= 1 - 1e-9 else { return false }
    armed.credit -= 1
    armed.fired += 1
    return true
  }
}

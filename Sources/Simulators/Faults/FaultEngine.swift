// Decides for each request whether a fault of the plan is due. It uses no random numbers: the same requests get the
// same faults.

internal import Runtime

/// The rules of the plan for one simulator, with their counters.
struct FaultEngine: Sendable {
  private struct Armed: Sendable {
    var rule: FaultRule
    var prefix: [UInt8]
    var seen = 0
    var fired = 0
    /// The sum of the shares since the last fault; at 1 a fault is due.
    var credit = 0.0
  }

  private var armed: [Armed] = []

  /// - Parameters:
  ///   - provider: only its rules are used.
  ///   - environment: APNs: the listener's environment; rules for the other one are ignored.
  init(_ plan: FaultPlan, for provider: SimulatedProvider, environment: String = "") {
    for rule in plan.rules where rule.provider == provider {
      if let only = rule.environment, only != environment { continue }
      armed.append(Armed(rule: rule, prefix: Array((rule.tokenPrefix ?? "").utf8)))
    }
  }

  var isEmpty: Bool { armed.isEmpty }

  /// The fault for a request with this token, if any: that of the first rule that is due.
  mutating func fault(for token: ArraySlice<UInt8>) -> Fault? {
    for index in armed.indices where isDue(&armed[index], token) {
      var fault = armed[index].rule.fault
      if fault.stallMax > .zero { fault.delay = fault.delay + Self.stall(of: token, within: fault.stallMax) }
      return fault
    }
    return nil
  }

  /// A delay from 0 to `longest`, distributed evenly over all tokens (FNV-1a).
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

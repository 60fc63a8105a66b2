// Tokens that request a fault, for providers whose tokens may contain letters: FCM, Expo and web push.

internal import Runtime

/// Reads a fault from a token: `fault-NAME` or `fault-NAME-NUMBER`, optionally followed by a dash and any text.
///
/// NAME is one of the provider's reasons or one of `Fault.names`. NUMBER is the Retry-After in seconds, or for `slow`
/// the delay in milliseconds: `fault-UNAVAILABLE-7-abc`, `fault-slow-250-abc`, `fault-UNREGISTERED-abc`.
enum TokenFault {
  static let prefix: StaticString = "fault-"

  /// - Parameter known: returns the fault for a reason of the provider; nil for an unknown name.
  static func fault(in token: ArraySlice<UInt8>, known: (String) -> Fault?) -> Fault? {
    guard token.hasPrefix(prefix) else { return nil }
    let parts = token.dropFirst(prefix.utf8CodeUnitCount).split(
      separator: UInt8(ascii: "-"), maxSplits: 2, omittingEmptySubsequences: false)
    guard let name = parts.first?.text, var fault = known(name) ?? Fault.named(name) else { return nil }
    if parts.count > 1, let number = parts[1].decimal {
      if name == "slow" {
        fault.delay = .milliseconds(number)
      } else {
        fault.retryAfter = Int(number)
      }
    }
    return fault
  }
}

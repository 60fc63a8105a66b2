// Remembers which addresses of a host worked and which failed, and orders them accordingly.

internal import Synchronization

/// Remembers the results of connections to addresses. Addresses are texts here, as logs show them.
///
/// The address that worked last is tried first. Addresses that failed since they last worked come last. The others keep the
/// resolver's order, alternating between the two families (RFC 8305 §4), so that a broken IPv6 costs one attempt.
public final class AddressBook: Sendable {
  /// The address book of the process.
  public static let shared = AddressBook()

  /// How long a failure is remembered.
  static let failureTime = Nanoseconds.seconds(600)
  /// Maximum number of hosts. The one looked up longest ago is forgotten first.
  static let hostsMax = 256
  /// Maximum number of failures remembered for one host.
  static let failuresMax = 64

  private struct Entry {
    var lastGood: String?
    var failures: [String: Instant] = [:]
    var use = 0
  }

  private struct State {
    var entries: [String: Entry] = [:]
    var uses = 0
  }

  private let state = Mutex(State())

  public init() {}

  /// The order in which to try addresses, as indices of `addresses`. An address that comes twice is tried once.
  ///
  /// - Parameters:
  ///   - addresses: as the resolver gave them, and whether each is of IPv6.
  ///   - host: the host of the addresses.
  ///   - interleaves: false keeps the given order of families, if the user chose it.
  public func order(
    _ addresses: [(text: String, isIPv6: Bool)], of host: String, now: Instant, interleaves: Bool = true
  ) -> [Int] {
    let entry = state.withLock { state in
      state.uses += 1
      state.entries[host]?.use = state.uses
      return state.entries[host] ?? Entry()
    }
    var seen: Set<String> = []
    let places = addresses.indices.filter { seen.insert(addresses[$0].text).inserted }
    let mixed = interleaves ? Self.interleave(places) { addresses[$0].isIPv6 } : places
    func rank(_ place: Int) -> Int {
      let text = addresses[place].text
      if let failedAt = entry.failures[text], failedAt + Self.failureTime > now { return 2 }
      return text == entry.lastGood ? 0 : 1
    }
    return (0...2).flatMap { wanted in mixed.filter { rank($0) == wanted } }
  }

  /// Whether the address is the one that worked last, and has not failed since.
  public func hasWorked(_ address: String, of host: String) -> Bool {
    state.withLock { $0.entries[host]?.lastGood == address }
  }

  /// An address could be connected to.
  public func didWork(_ address: String, of host: String) {
    change(host) {
      $0.lastGood = address
      $0.failures[address] = nil
    }
  }

  /// An address could not be connected to, or its connection was useless.
  public func didFail(_ address: String, of host: String, now: Instant) {
    change(host) {
      if $0.lastGood == address { $0.lastGood = nil }
      $0.failures[address] = now
      guard $0.failures.count > Self.failuresMax, let oldest = $0.failures.min(by: { $0.value < $1.value }) else {
        return
      }
      $0.failures[oldest.key] = nil
    }
  }

  private func change(_ host: String, _ body: (inout Entry) -> Void) {
    state.withLock { state in
      state.uses += 1
      body(&state.entries[host, default: Entry()])
      state.entries[host]?.use = state.uses
      guard state.entries.count > Self.hostsMax,
        let oldest = state.entries.min(by: { $0.value.use < $1.value.use })
      else { return }
      state.entries[oldest.key] = nil
    }
  }

  /// Alternates between the families, beginning with that of the first address.
  private static func interleave(_ places: [Int], isIPv6: (Int) -> Bool) -> [Int] {
    guard let first = places.first else { return [] }
    let preferred = places.filter { isIPv6($0) == isIPv6(first) }
    let others = places.filter { isIPv6($0) != isIPv6(first) }
    var mixed: [Int] = []
    for index in 0..<max(preferred.count, others.count) {
      if index < preferred.count { mixed.append(preferred[index]) }
      if index < others.count { mixed.append(others[index]) }
    }
    return mixed
  }
}

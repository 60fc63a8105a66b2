// The keys as their files hold them at this moment.

internal import Runtime
internal import Settings

/// Digests of keys by name. A file that has not changed is not read again; one that is gone, empty or too short is no key, nor is one
/// that now holds the key of another: the audit could not tell who it was.
struct OpsKeyring {
  /// Whose key it is.
  enum Holder: Equatable, Sendable {
    case operatorNamed(String)
    /// Whoever may read /metrics, and nothing else.
    case scraper
  }

  private struct Entry {
    let key: OpsKey
    var isForMetrics = false
    /// What `digest` was read from. Failures are not remembered: permissions may change without a trace in the stamp.
    var stamp: FileStamp?
    var digest: [UInt8]?
    var fault: OpsKey.Fault?
    /// The fault that `newFaults` gave last.
    var told: OpsKey.Fault?
  }

  private var entries: [Entry]

  /// - Parameter metricsKey: opens /metrics alone.
  init(_ keys: [OpsKey], metricsKey: OpsKey? = nil) {
    entries = keys.map { Entry(key: $0) } + [metricsKey].compactMap { $0.map { Entry(key: $0, isForMetrics: true) } }
  }

  /// Whether the file of a key could not serve when it was last looked at.
  var hasFault: Bool { entries.contains { $0.fault != nil } }

  /// The key of this operator as it is now.
  mutating func digest(of name: String) -> [UInt8]? {
    guard let index = entries.firstIndex(where: { $0.key.name == name && !$0.isForMetrics }) else { return nil }
    refresh(index)
    return entries[index].digest
  }

  /// Whose key this is; nil: nobody's.
  mutating func holder(of digest: [UInt8]) -> Holder? {
    var holder: Holder?
    for index in entries.indices { refresh(index) }
    for entry in entries {
      guard let known = entry.digest, OpsKey.equal(known, digest) else { continue }
      holder = entry.isForMetrics ? .scraper : .operatorNamed(entry.key.name)
    }
    return holder
  }

  /// Looks at every file, and returns the faults that it has not returned before.
  mutating func newFaults() -> [(name: String, fault: OpsKey.Fault)] {
    var faults: [(String, OpsKey.Fault)] = []
    for index in entries.indices {
      refresh(index)
      let fault = entries[index].fault
      if let fault, fault != entries[index].told { faults.append((entries[index].key.name, fault)) }
      entries[index].told = fault
    }
    return faults
  }

  private mutating func refresh(_ index: Int) {
    let stamp = FileStamp(path: entries[index].key.file)
    if let stamp, stamp == entries[index].stamp, entries[index].digest != nil { return }
    do throws(OpsKey.Fault) {
      let digest = try entries[index].key.digest()
      // The one in use stays: another file that comes to hold its key does not.
      if let other = entries.indices.first(where: { $0 != index && entries[$0].digest == digest }) {
        throw OpsKey.Fault.sameKey(entries[index].key.file, as: entries[other].key.name)
      }
      entries[index].digest = digest
      entries[index].stamp = stamp
      entries[index].fault = nil
    } catch {
      entries[index].digest = nil
      entries[index].stamp = nil
      entries[index].fault = error
    }
  }
}

// The ops keys, read from their files.

internal import Runtime
internal import Settings

/// The digests of keys by name. A file is read again only after a change. There is no key if its file is missing, empty
/// or too short, or if it contains the key of another name: the audit could not tell the two apart.
struct OpsKeyring {
  /// The holder of a key.
  enum Holder: Equatable, Sendable {
    case operatorNamed(String)
    /// The key of /metrics, which gives access to nothing else.
    case scraper
  }

  private struct Entry {
    let key: OpsKey
    var isForMetrics = false
    /// The state of the file that `digest` was read from. Nil after a failure, because changed permissions do not
    /// change the stamp.
    var stamp: FileStamp?
    var digest: [UInt8]?
    var fault: OpsKey.Fault?
    /// The fault that `newFaults` returned last.
    var reportedFault: OpsKey.Fault?
  }

  private var entries: [Entry]

  /// - Parameter metricsKey: the key that gives access to /metrics only.
  init(_ keys: [OpsKey], metricsKey: OpsKey? = nil) {
    entries = keys.map { Entry(key: $0) } + [metricsKey].compactMap { $0.map { Entry(key: $0, isForMetrics: true) } }
  }

  /// Whether the file of a key could not be used when it was last read.
  var hasFault: Bool { entries.contains { $0.fault != nil } }

  /// The current digest of this operator's key.
  mutating func digest(of name: String) -> [UInt8]? {
    guard let index = entries.firstIndex(where: { $0.key.name == name && !$0.isForMetrics }) else { return nil }
    refresh(index)
    return entries[index].digest
  }

  /// The holder of the key with this digest; nil if there is none.
  mutating func holder(of digest: [UInt8]) -> Holder? {
    var holder: Holder?
    for index in entries.indices { refresh(index) }
    for entry in entries {
      guard let known = entry.digest, OpsKey.equal(known, digest) else { continue }
      holder = entry.isForMetrics ? .scraper : .operatorNamed(entry.key.name)
    }
    return holder
  }

  /// Reads every file that has changed, and returns the faults that were not returned before.
  mutating func newFaults() -> [(name: String, fault: OpsKey.Fault)] {
    var faults: [(String, OpsKey.Fault)] = []
    for index in entries.indices {
      refresh(index)
      let fault = entries[index].fault
      if let fault, fault != entries[index].reportedFault { faults.append((entries[index].key.name, fault)) }
      entries[index].reportedFault = fault
    }
    return faults
  }

  private mutating func refresh(_ index: Int) {
    let stamp = FileStamp(path: entries[index].key.file)
    if let stamp, stamp == entries[index].stamp, entries[index].digest != nil { return }
    do throws(OpsKey.Fault) {
      let digest = try entries[index].key.digest()
      // The key that was read first stays valid. The other file is at fault.
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

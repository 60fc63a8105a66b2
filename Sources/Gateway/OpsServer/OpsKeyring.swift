// The keys as their files hold them at this moment.

internal import Runtime

/// Digests of keys by name. A file that has not changed is not read again; one that is gone, empty or too short is no key.
struct OpsKeyring {
  private struct Entry {
    let key: OpsKey
    /// What `digest` was read from. Failures are not remembered: permissions may change without a trace in the stamp.
    var stamp: FileStamp?
    var digest: [UInt8]?
    var fault: OpsKey.Fault?
    /// The fault that `newFaults` gave last.
    var told: OpsKey.Fault?
  }

  private var entries: [Entry]

  init(_ keys: [OpsKey]) {
    entries = keys.map { Entry(key: $0) }
  }

  var isEmpty: Bool { entries.isEmpty }

  /// The key of this name as it is now.
  mutating func digest(of name: String) -> [UInt8]? {
    guard let index = entries.firstIndex(where: { $0.key.name == name }) else { return nil }
    refresh(index)
    return entries[index].digest
  }

  /// Whose key this is, of several the first; and whether there is any key at all.
  mutating func holder(of digest: [UInt8]) -> (name: String?, isUsable: Bool) {
    var name: String?
    for index in entries.indices { refresh(index) }
    for entry in entries {
      guard let known = entry.digest, OpsKey.equal(known, digest), name == nil else { continue }
      name = entry.key.name
    }
    return (name, entries.contains { $0.digest != nil })
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
      entries[index].digest = try entries[index].key.digest()
      entries[index].stamp = stamp
      entries[index].fault = nil
    } catch {
      entries[index].digest = nil
      entries[index].stamp = nil
      entries[index].fault = error
    }
  }
}

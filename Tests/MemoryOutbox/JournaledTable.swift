// A table of `MemoryOutbox` that can be taken back to an earlier state, as a crash of Postgres takes back commits that had not
// reached the disk.

/// Rows by key, and what every change replaced.
public struct JournaledTable<Key: Hashable & Sendable, Row: Sendable>: Sendable {
  /// One change.
  struct Change: Sendable {
    var key: Key
    /// What the row was before; nil where there was none.
    var before: Row?
  }

  public private(set) var rows: [Key: Row] = [:]
  private(set) var changes: [Change] = []
  /// Keys that were changed since `takeTouched`.
  private var touched: [Key] = []
  /// Changes that were forgotten, because nothing can take them back any more.
  private var forgotten = 0

  public init() {}

  public subscript(key: Key) -> Row? {
    get { rows[key] }
    set {
      changes.append(Change(key: key, before: rows[key]))
      touched.append(key)
      rows[key] = newValue
    }
  }

  public var values: Dictionary<Key, Row>.Values { rows.values }

  /// Where the journal ends now.
  var position: Int { forgotten + changes.count }

  /// The keys that were changed since the last time, in that order, some of them more than once.
  mutating func takeTouched() -> [Key] {
    defer { touched.removeAll(keepingCapacity: true) }
    return touched
  }

  /// Takes back every change since `position`. Returns the keys of what was changed.
  @discardableResult
  mutating func rollBack(to position: Int) -> Set<Key> {
    var keys: Set<Key> = []
    while self.position > position, let change = changes.popLast() {
      rows[change.key] = change.before
      keys.insert(change.key)
    }
    return keys
  }

  /// Changes before `position` are on the disk.
  mutating func forget(before position: Int) {
    let count = min(changes.count, position - forgotten)
    guard count > 0 else { return }
    changes.removeFirst(count)
    forgotten += count
  }
}

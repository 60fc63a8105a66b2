// A table of `MemoryOutbox` that can be restored to an earlier state, as a crash of Postgres loses commits that have
// not reached the disk.

/// Rows by key, and the row that each change replaced.
public struct JournaledTable<Key: Hashable & Sendable, Row: Sendable>: Sendable {
  /// One change.
  struct Change: Sendable {
    var key: Key
    /// The row before the change; nil if there was none.
    var before: Row?
  }

  public private(set) var rows: [Key: Row] = [:]
  private(set) var changes: [Change] = []
  /// Keys that were changed since `takeTouched`.
  private var touched: [Key] = []
  /// Number of changes that were discarded because they can no longer be undone.
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

  /// The current end of the journal.
  var position: Int { forgotten + changes.count }

  /// The keys that were changed since the last call, in that order, some of them more than once.
  mutating func takeTouched() -> [Key] {
    defer { touched.removeAll(keepingCapacity: true) }
    return touched
  }

  /// Undoes every change since `position` and returns the changed keys.
  @discardableResult
  mutating func rollBack(to position: Int) -> Set<Key> {
    var keys: Set<Key> = []
    while self.position > position, let change = changes.popLast() {
      rows[change.key] = change.before
      keys.insert(change.key)
    }
    return keys
  }

  /// Marks changes before `position` as on the disk.
  mutating func forget(before position: Int) {
    let count = min(changes.count, position - forgotten)
    guard count > 0 else { return }
    changes.removeFirst(count)
    forgotten += count
  }
}

// A queue whose elements can be removed from the middle in constant time.

/// Elements in the order in which they were appended; each at most once.
struct LinkedOrder<Element: Hashable> {
  private struct Links {
    var before: Element?
    var after: Element?
  }

  private var links: [Element: Links] = [:]
  /// The oldest element.
  private(set) var first: Element?
  private var last: Element?

  var count: Int { links.count }
  var isEmpty: Bool { links.isEmpty }

  /// - Precondition: the element is not in the queue.
  mutating func append(_ element: Element) {
    precondition(links[element] == nil, "an element can be in a queue only once")
    links[element] = Links(before: last)
    if let last { links[last]?.after = element } else { first = element }
    last = element
  }

  /// Does nothing if the element is not in the queue.
  mutating func remove(_ element: Element) {
    guard let gone = links.removeValue(forKey: element) else { return }
    if let before = gone.before { links[before]?.after = gone.after } else { first = gone.after }
    if let after = gone.after { links[after]?.before = gone.before } else { last = gone.before }
  }
}

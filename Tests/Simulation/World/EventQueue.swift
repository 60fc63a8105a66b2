// The queue of future events, ordered by virtual time.

/// True time in nanoseconds since the simulation began. No clock in the simulation shows it.
typealias VirtualTime = Int64

/// A heap of events. Events of the same time happen in the order in which they were added.
struct EventQueue {
  private struct Entry {
    var at: VirtualTime
    var sequence: UInt64
    var body: () -> Void

    func comesBefore(_ other: Entry) -> Bool { (at, sequence) < (other.at, other.sequence) }
  }

  private var heap: [Entry] = []
  private var sequence: UInt64 = 0

  var next: VirtualTime? { heap.first?.at }

  mutating func add(at time: VirtualTime, _ body: @escaping () -> Void) {
    sequence += 1
    heap.append(Entry(at: time, sequence: sequence, body: body))
    var child = heap.count - 1
    while child > 0 {
      let parent = (child - 1) / 2
      guard heap[child].comesBefore(heap[parent]) else { break }
      heap.swapAt(child, parent)
      child = parent
    }
  }

  mutating func pop() -> (at: VirtualTime, body: () -> Void)? {
    guard let first = heap.first else { return nil }
    heap.swapAt(0, heap.count - 1)
    heap.removeLast()
    var parent = 0
    while true {
      var smallest = parent
      for child in [2 * parent + 1, 2 * parent + 2] where child < heap.count {
        if heap[child].comesBefore(heap[smallest]) { smallest = child }
      }
      guard smallest != parent else { break }
      heap.swapAt(parent, smallest)
      parent = smallest
    }
    return (first.at, first.body)
  }

  mutating func removeAll() { heap = [] }
}

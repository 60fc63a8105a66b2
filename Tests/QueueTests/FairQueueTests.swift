import Queue
import Testing

@Suite struct FairQueueTests {
  /// Takes everything, as owner:element.
  private func drain(_ queue: inout FairQueue<Int32, Int>, where mayServe: (Int32) -> Bool = { _ in true }) -> [String]
  {
    var found: [String] = []
    while let next = queue.popFirst(where: mayServe) { found.append("\(next.owner):\(next.element)") }
    return found
  }

  @Test func `owners take turns, each in its order`() {
    var queue = FairQueue<Int32, Int>(countMax: 10)
    for element in 1...4 { #expect(queue.append(element, of: 1) == nil) }
    #expect(queue.append(1, of: 2) == nil)
    #expect(queue.append(2, of: 2) == nil)
    #expect(drain(&queue) == ["1:1", "2:1", "1:2", "2:2", "1:3", "1:4"])
    #expect(queue.isEmpty)
  }

  @Test func `an owner that may not be served now keeps its place`() {
    var queue = FairQueue<Int32, Int>(countMax: 10)
    for owner: Int32 in [1, 2, 3] { _ = queue.append(0, of: owner) }
    #expect(drain(&queue, where: { $0 != 1 }) == ["2:0", "3:0"])
    #expect(queue.count == 1)
    #expect(drain(&queue) == ["1:0"])
  }

  @Test func `a full queue removes an element of the owner with the most elements`() {
    var queue = FairQueue<Int32, Int>(countMax: 4)
    for element in 1...4 { #expect(queue.append(element, of: 1) == nil) }
    #expect(queue.append(5, of: 1) == 5)
    #expect(queue.append(1, of: 2) == 4)
    #expect(queue.append(2, of: 2) == 3)
    // Both have two elements: the new one is refused.
    #expect(queue.append(3, of: 2) == 3)
    #expect(drain(&queue) == ["1:1", "2:1", "1:2", "2:2"])
  }

  @Test func `removed elements leave no trace`() {
    var queue = FairQueue<Int32, Int>(countMax: 4)
    for element in 1...3 { _ = queue.append(element, of: 1) }
    #expect(queue.remove(of: 1, where: { $0 == 2 }) == 2)
    #expect(queue.remove(of: 1, where: { $0 == 2 }) == nil)
    #expect(queue.remove(of: 2, where: { _ in true }) == nil)
    #expect(drain(&queue) == ["1:1", "1:3"])
    _ = queue.append(1, of: 1)
    #expect(queue.remove(of: 1, where: { _ in true }) == 1)
    #expect(queue.isEmpty)
    #expect(drain(&queue).isEmpty)
  }
}

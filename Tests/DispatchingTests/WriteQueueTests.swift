// Tests of batches that are refused, locked or slow: in which parts they are written again, and when.

import Queue
import Runtime
import Testing

@testable import Dispatching

private let start = MachineRig.start

@Suite("Write queue") struct WriteQueueTests {
  @Test("a refused batch is written in halves, one part at a time, until one element is alone")
  func halves() {
    var queue = WriteQueue<Int>()
    for element in 1...4 { queue.add(element, start) }
    var sizes: [Int] = []
    var culprits: [Int] = []
    while let batch = queue.next(start, isLast: true) {
      sizes.append(batch.elements.count)
      guard batch.elements.contains(3) else {
        queue.didWrite(batch)
        continue
      }
      if case .culprit(let element) = queue.didFail(batch, .refusedRows, start) { culprits.append(element) }
    }
    #expect(sizes == [4, 2, 2, 1, 1])
    #expect(culprits == [3])
    #expect(queue.isIdle)
  }

  @Test("a locked element delays no other; it is tried again after 500 ms to 4 s")
  func locked() {
    var queue = WriteQueue<Int>()
    for element in 1...4 { queue.add(element, start) }
    var now = start
    func drain(isLocked: Bool) -> [[Int]] {
      var tried: [[Int]] = []
      while let batch = queue.next(now, isLast: true) {
        tried.append(batch.elements)
        if isLocked, batch.elements.contains(3) {
          _ = queue.didFail(batch, .locked, now)
        } else {
          queue.didWrite(batch)
        }
      }
      return tried
    }
    #expect(drain(isLocked: true) == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [4]])
    queue.add(5, now)
    #expect(drain(isLocked: true) == [[5]])
    #expect(!queue.isIdle)
    #expect(queue.count == 1)
    for milliseconds: Int64 in [500, 1000, 2000, 4000, 4000] {
      #expect(queue.due == now + .milliseconds(milliseconds))
      now = queue.due
      #expect(drain(isLocked: true) == [[3]])
    }
    now = queue.due
    #expect(drain(isLocked: false) == [[3]])
    #expect(queue.isIdle)
    #expect(queue.due == .distantFuture)
  }

  @Test("a batch that takes too long is written in smaller ones; what is slow alone delays no other")
  func slow() {
    var queue = WriteQueue<Int>()
    for element in 1...4 { queue.add(element, start) }
    var now = start
    func drain() -> [[Int]] {
      var tried: [[Int]] = []
      while let batch = queue.next(now, isLast: true) {
        tried.append(batch.elements)
        if batch.elements.contains(3) { _ = queue.didFail(batch, .tooSlow, now) } else { queue.didWrite(batch) }
      }
      return tried
    }
    #expect(drain() == [[1, 2, 3, 4]])
    #expect(queue.due == now + .milliseconds(250))
    now = queue.due
    #expect(drain() == [[1, 2], [3, 4]])
    now = queue.due
    #expect(drain() == [[3], [4]])
    queue.add(5, now)
    #expect(drain() == [[5]])
    for milliseconds: Int64 in [500, 1000, 2000, 4000, 4000] {
      #expect(queue.due == now + .milliseconds(milliseconds))
      now = queue.due
      #expect(drain() == [[3]])
    }
    #expect(queue.count == 1)
  }

  @Test("pauses after failures grow from 250 ms to 4 s, and end with a success")
  func pauses() {
    var queue = WriteQueue<Int>()
    queue.add(1, start)
    var now = start
    for milliseconds: Int64 in [250, 500, 1000, 2000, 4000, 4000] {
      guard let batch = queue.next(now, isLast: true) else { return #expect(Bool(false), "due at \(now)") }
      _ = queue.didFail(batch, .transient, now)
      #expect(queue.due == now + .milliseconds(milliseconds))
      now = queue.due
    }
    guard let batch = queue.next(now, isLast: true) else { return #expect(Bool(false), "due") }
    queue.didWrite(batch)
    queue.add(2, now)
    #expect(queue.due == now + .milliseconds(5), "it only waits for company")
  }

  @Test("elements that arrive while a refused batch is split are written beside its parts")
  func beside() {
    var queue = WriteQueue<Int>()
    for element in 1...4 { queue.add(element, start) }
    guard let batch = queue.next(start, isLast: true) else { return #expect(Bool(false), "due") }
    _ = queue.didFail(batch, .refusedRows, start)
    queue.add(9, start)
    let next = (0..<3).map { _ in queue.next(start, isLast: true)?.elements }
    #expect(next == [[1, 2], [9], nil])
  }
}

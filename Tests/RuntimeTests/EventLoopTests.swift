// Tests of the event loop: whose thread work runs on, in which order, and when.

import Foundation
import Runtime
import Synchronization
import Testing

@Suite("Event loop", .timeLimit(.minutes(10)))
struct EventLoopTests {
  actor Counter {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private(set) var values: [Int] = []
    init(loop: EventLoop) { self.loop = loop }
    func add(_ value: Int) {
      loop.checkIsolated()
      values.append(value)
    }
  }

  @Test
  func `an actor on a loop runs on the loop's thread`() async {
    let loop = EventLoop(name: "test")
    defer { loop.stop() }
    let counter = Counter(loop: loop)
    for value in 0..<100 { await counter.add(value) }
    #expect(await counter.values == Array(0..<100))
    #expect(!loop.isCurrent)
  }

  @Test
  func `work passed from many threads is run exactly once`() async {
    let loop = EventLoop(name: "test")
    defer { loop.stop() }
    let counter = Counter(loop: loop)
    await withTaskGroup { group in
      for thread in 0..<8 {
        group.addTask {
          for value in 0..<1000 { loop.execute { counter.assumeIsolated { $0.add(thread * 1000 + value) } } }
        }
      }
    }
    let values = await counter.values
    #expect(values.count == 8000)
    #expect(Set(values).count == 8000)
  }

  @Test
  func `timers fire in the order of their times, and a cancelled one never`() async {
    let loop = EventLoop(name: "test")
    defer { loop.stop() }
    let order: [Int] = await withCheckedContinuation { continuation in
      loop.execute {
        nonisolated(unsafe) var fired: [Int] = []
        let now = loop.now
        loop.schedule(at: now + .milliseconds(30)) {
          fired.append(3)
          continuation.resume(returning: fired)
        }
        loop.schedule(at: now + .milliseconds(10)) { fired.append(1) }
        loop.schedule(at: now + .milliseconds(15)) { fired.append(99) }.cancel()
        loop.schedule(at: now + .milliseconds(20)) { fired.append(2) }
      }
    }
    #expect(order == [1, 2, 3])
  }

  @Test
  func `a descriptor's handler is called when it becomes readable, and not after unwatch`() async throws {
    let loop = EventLoop(name: "test")
    defer { loop.stop() }
    var ends: [Int32] = [0, 0]
    #expect(pipe(&ends) == 0)
    let (reading, writing) = (FileDescriptor(owning: ends[0]), FileDescriptor(owning: ends[1]))
    let seen: Int = await withCheckedContinuation { continuation in
      loop.execute {
        nonisolated(unsafe) var count = 0
        nonisolated(unsafe) var watch: EventLoop.Watch?
        watch = loop.watch(reading.rawValue, for: .readable) { readiness in
          #expect(readiness.contains(.readable))
          count += 1
          loop.unwatch(watch!)  // the byte stays in the pipe: a second call would follow at once
          loop.schedule(at: loop.now + .milliseconds(20)) { continuation.resume(returning: count) }
        }
        var byte: UInt8 = 1
        _ = write(writing.rawValue, &byte, 1)
      }
    }
    #expect(seen == 1)
  }

  @Test
  func `work deferred to the end of a turn runs after the jobs of the turn`() async {
    let loop = EventLoop(name: "test")
    defer { loop.stop() }
    let order: [String] = await withCheckedContinuation { continuation in
      loop.execute {
        nonisolated(unsafe) var order: [String] = []
        loop.atEndOfTurn {
          order.append("end")
          continuation.resume(returning: order)
        }
        order.append("job")
      }
    }
    #expect(order == ["job", "end"])
  }

  @Test
  func `work that is deferred again and again keeps no job waiting, and runs once more each turn`() async {
    let loop = EventLoop(name: "test")
    defer { loop.stop() }
    let flag = Atomic<Bool>(false)
    let count: Int = await withCheckedContinuation { continuation in
      loop.execute {
        nonisolated(unsafe) var rounds = 0
        nonisolated(unsafe) var again: () -> Void = {}
        again = {
          rounds += 1
          // Ends at last even if the job never runs.
          guard !flag.load(ordering: .relaxed), rounds < 1_000_000 else {
            again = {}
            return continuation.resume(returning: rounds)
          }
          loop.atEndOfTurn { again() }
        }
        loop.atEndOfTurn { again() }
        loop.execute { flag.store(true, ordering: .relaxed) }
      }
    }
    #expect(count < 100)
  }
}

import Foundation
import Runtime
import Testing

@Suite("Event loop: descriptors", .timeLimit(.minutes(10)))
struct EventLoopDescriptorTests {
  /// The ends of a pipe, open as long as this object; bytes written to one are read from the other.
  private final class Pipe: Sendable {
    let reading: FileDescriptor
    let writing: FileDescriptor

    init() {
      var ends: [Int32] = [0, 0]
      precondition(pipe(&ends) == 0)
      reading = FileDescriptor(owning: ends[0])
      writing = FileDescriptor(owning: ends[1])
    }

    func put() {
      var byte: UInt8 = 1
      _ = write(writing.rawValue, &byte, 1)
    }

    func take() {
      var byte: UInt8 = 0
      _ = read(reading.rawValue, &byte, 1)
    }
  }

  /// Runs `body` on a loop of its own until that calls its argument with a value.
  private func onLoop<Value: Sendable>(
    _ body: @escaping @Sendable (EventLoop, @escaping (Value) -> Void) -> Void
  ) async -> Value {
    let loop = EventLoop(name: "test")
    defer { loop.stop() }
    return await withCheckedContinuation { continuation in
      loop.execute { body(loop) { continuation.resume(returning: $0) } }
    }
  }

  @Test
  func `a watch that another handler ended is not called in the same turn, nor is the new owner of its number`() async {
    let (pipes, successor) = ([Pipe(), Pipe()], Pipe())
    defer { withExtendedLifetime((pipes, successor)) {} }
    let heard: [String] = await onLoop { loop, finish in
      // Both are ready in the next turn. The handler called first closes the other descriptor, whose number then
      // belongs to a new one.
      nonisolated(unsafe) var heard: [String] = []
      nonisolated(unsafe) var watches: [EventLoop.Watch] = []
      for index in 0..<2 {
        watches.append(
          loop.watch(pipes[index].reading.rawValue, for: .readable) { _ in
            heard.append("first")
            for watch in watches { loop.unwatch(watch) }
            let number = pipes[1 - index].reading.rawValue
            #expect(dup2(successor.reading.rawValue, number) == number)
            watches = [loop.watch(number, for: .readable) { _ in heard.append("successor") }]
            // Its number was reported as ready in this turn, but nothing was written to the successor.
            loop.schedule(at: loop.now + .milliseconds(20)) {
              finish(heard)
              loop.unwatch(watches[0])
            }
          })
      }
      for pipe in pipes { pipe.put() }
    }
    #expect(heard == ["first"])
  }

  @Test
  func `a reused number is watched again, whether the old watch is ended before or after`() async {
    for isToldBefore in [true, false] {
      let (old, new) = (Pipe(), Pipe())
      defer { withExtendedLifetime((old, new)) {} }
      let heard: [String] = await onLoop { loop, finish in
        nonisolated(unsafe) var heard: [String] = []
        let number = old.reading.rawValue
        let former = loop.watch(number, for: .readable) { _ in heard.append("old") }
        if isToldBefore { loop.unwatch(former) }
        // As libpq does when it tries the next address: the number is closed and opened in one step.
        #expect(dup2(new.reading.rawValue, number) == number)
        nonisolated(unsafe) var watch: EventLoop.Watch?
        watch = loop.watch(number, for: .readable) { readiness in
          #expect(readiness.contains(.readable))
          heard.append("new")
          loop.unwatch(watch!)
          finish(heard)
        }
        if !isToldBefore { loop.unwatch(former) }
        new.put()
      }
      #expect(heard == ["new"])
    }
  }

  @Test
  func `a watch whose number its owner closed and reopened continues after an update`() async {
    let (old, new) = (Pipe(), Pipe())
    defer { withExtendedLifetime((old, new)) {} }
    let readiness: EventLoop.Readiness = await onLoop { loop, finish in
      let number = old.reading.rawValue
      nonisolated(unsafe) var watch: EventLoop.Watch?
      watch = loop.watch(number, for: []) {
        loop.unwatch(watch!)
        finish($0)
      }
      #expect(dup2(new.reading.rawValue, number) == number)
      loop.update(watch!, for: .readable)
      new.put()
    }
    #expect(readiness == .readable)
  }

  @Test(arguments: [-1, 1_000_000])
  func `a descriptor that is not open is reported as hung up`(_ number: Int32) async {
    let readiness: EventLoop.Readiness = await onLoop { loop, finish in
      nonisolated(unsafe) var watch: EventLoop.Watch?
      watch = loop.watch(number, for: .readable) {
        loop.unwatch(watch!)
        finish($0)
      }
    }
    #expect(readiness == .hangup)
  }

  @Test
  func `a hang-up is reported even if no events were requested`() async {
    var ends: [Int32] = [0, 0]
    #expect(pipe(&ends) == 0)
    let near = FileDescriptor(owning: ends[0])
    defer { withExtendedLifetime(near) {} }
    let far = ends[1]
    let readiness: EventLoop.Readiness = await onLoop { loop, finish in
      nonisolated(unsafe) var watch: EventLoop.Watch?
      watch = loop.watch(near.rawValue, for: []) {
        loop.unwatch(watch!)
        finish($0)
      }
      close(far)
    }
    #expect(readiness.contains(.hangup))
  }

  @Test
  func `a watch is called for the events that it currently requests, in every turn while they are ready`() async {
    var ends: [Int32] = [0, 0]
    #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
    let (near, far) = (FileDescriptor(owning: ends[0]), FileDescriptor(owning: ends[1]))
    defer { withExtendedLifetime((near, far)) {} }
    let heard: [EventLoop.Readiness] = await onLoop { loop, finish in
      nonisolated(unsafe) var heard: [EventLoop.Readiness] = []
      nonisolated(unsafe) var watch: EventLoop.Watch?
      watch = loop.watch(near.rawValue, for: .writable) {
        heard.append($0)
        switch heard.count {
        case 1: break  // still writable: heard of once more
        case 2:
          loop.update(watch!, for: [])
          loop.update(watch!, for: .readable)
          var byte: UInt8 = 1
          _ = write(far.rawValue, &byte, 1)
        case 3: loop.update(watch!, for: [.readable, .writable])
        default:
          loop.unwatch(watch!)
          finish(heard)
        }
      }
    }
    #expect(heard == [.writable, .writable, .readable, [.readable, .writable]])
  }

  @Test
  func `one busy descriptor is reported among two thousand idle ones`() async throws {
    var limit = rlimit()
    #expect(getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
    limit.rlim_cur = min(limit.rlim_max, 8192)
    #expect(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
    let (idle, busy) = ((0..<2000).map { _ in Pipe() }, Pipe())
    defer { withExtendedLifetime((idle, busy)) {} }
    let (rounds, strays): (Int, Int) = await onLoop { loop, finish in
      nonisolated(unsafe) var rounds = 0
      nonisolated(unsafe) var strays = 0
      nonisolated(unsafe) var watches: [EventLoop.Watch] = []
      for pipe in idle { watches.append(loop.watch(pipe.reading.rawValue, for: .readable) { _ in strays += 1 }) }
      watches.append(
        loop.watch(busy.reading.rawValue, for: .readable) { _ in
          busy.take()
          rounds += 1
          guard rounds == 1000 else { return busy.put() }
          for watch in watches { loop.unwatch(watch) }
          finish((rounds, strays))
        })
      busy.put()
    }
    #expect(rounds == 1000)
    #expect(strays == 0)
  }
}

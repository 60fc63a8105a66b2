import Foundation
import Testing

@testable import Runtime

/// Tests of behaviour common to the pollers of all systems; poll(2) exists on Linux, too.
@Suite("Descriptor poller", .timeLimit(.minutes(10)))
struct DescriptorPollerTests {
  private static var pollers: [any DescriptorPoller.Type] {
    #if os(Linux)
    [PollPoller.self, EpollPoller.self]
    #else
    [PollPoller.self]
    #endif
  }

  /// A connected pair; the far ends stay open as long as this.
  private final class Pair {
    let near: FileDescriptor
    let far: FileDescriptor

    init() {
      var ends: [Int32] = [0, 0]
      precondition(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
      near = FileDescriptor(owning: ends[0])
      far = FileDescriptor(owning: ends[1])
    }

    var number: Int32 { near.rawValue }
  }

  private func found(_ poller: inout any DescriptorPoller) -> [ReadyDescriptor] {
    var ready: [ReadyDescriptor] = []
    poller.wait(milliseconds: 0, into: &ready)
    return ready.sorted { $0.tag < $1.tag }
  }

  @Test(arguments: pollers.indices)
  func `a ready descriptor is reported under its tag until it is removed`(_ kind: Int) {
    var poller: any DescriptorPoller = Self.pollers[kind].init()
    let pairs = (0..<4).map { _ in Pair() }
    for (tag, pair) in pairs.enumerated() { poller.add(pair.number, for: .readable, tag: UInt32(tag)) }
    #expect(found(&poller).isEmpty)

    for index in [0, 1, 3] { pairs[index].far.writeByte() }
    for _ in 0..<2 {
      let ready = [0, 1, 3].map { ReadyDescriptor(descriptor: pairs[$0].number, tag: UInt32($0), readiness: .readable) }
      #expect(found(&poller) == ready)
    }

    poller.remove(pairs[0].number)  // the last one moves into its place
    poller.update(pairs[1].number, for: [], tag: 1)
    poller.update(pairs[2].number, for: [.readable, .writable], tag: 12)
    #expect(
      found(&poller) == [
        ReadyDescriptor(descriptor: pairs[3].number, tag: 3, readiness: .readable),
        ReadyDescriptor(descriptor: pairs[2].number, tag: 12, readiness: .writable),
      ])
    poller.update(pairs[3].number, for: .writable, tag: 3)
    poller.remove(pairs[2].number)
    #expect(found(&poller) == [ReadyDescriptor(descriptor: pairs[3].number, tag: 3, readiness: .writable)])
    withExtendedLifetime(pairs) {}
  }

  @Test(arguments: pollers.indices)
  func `a closed descriptor is reported as hung up until it is removed`(_ kind: Int) {
    var poller: any DescriptorPoller = Self.pollers[kind].init()
    poller.add(1_000_000, for: .readable, tag: 7)
    for _ in 0..<2 {
      #expect(found(&poller) == [ReadyDescriptor(descriptor: 1_000_000, tag: 7, readiness: .hangup)])
    }
    poller.update(1_000_000, for: .writable, tag: 7)
    #expect(found(&poller) == [ReadyDescriptor(descriptor: 1_000_000, tag: 7, readiness: .hangup)])
    poller.remove(1_000_000)
    #expect(found(&poller).isEmpty)
  }

  @Test(arguments: pollers.indices)
  func `removing a closed descriptor is no error, and its number can be added again`(_ kind: Int) {
    var poller: any DescriptorPoller = Self.pollers[kind].init()
    let (old, new) = (Pair(), Pair())
    poller.add(old.number, for: .readable, tag: 1)
    #expect(dup2(new.number, old.number) == old.number)  // closes it and uses its number again
    poller.remove(old.number)
    poller.add(old.number, for: .readable, tag: 2)
    new.far.writeByte()
    #expect(found(&poller) == [ReadyDescriptor(descriptor: old.number, tag: 2, readiness: .readable)])
    withExtendedLifetime((old, new)) {}
  }

  @Test(arguments: pollers.indices)
  func `a closed peer is reported as hung up, whichever events were requested`(_ kind: Int) {
    var poller: any DescriptorPoller = Self.pollers[kind].init()
    var ends: [Int32] = [0, 0]
    #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
    let near = FileDescriptor(owning: ends[0])
    poller.add(near.rawValue, for: [], tag: 1)
    close(ends[1])
    #expect(found(&poller) == [ReadyDescriptor(descriptor: near.rawValue, tag: 1, readiness: .hangup)])
  }
}

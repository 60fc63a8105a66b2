// Which of many descriptors are ready: epoll(7) on Linux, poll(2) elsewhere.
//
// Both report a descriptor as long as it is ready (level-triggered). Both report hang-ups and errors even if not asked for, and
// report a descriptor that is not open as hung up. Each descriptor has a tag. When a number is used again, events of the old
// descriptor still have the old tag.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// The descriptors an event loop waits for, each once.
protocol DescriptorPoller {
  init()
  mutating func add(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt32)
  mutating func update(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt32)
  /// The descriptor may be closed already.
  mutating func remove(_ descriptor: Int32)
  /// Waits until a descriptor is ready and writes the ready ones into `ready`; if there are very many, only a part.
  ///
  /// - Parameter milliseconds: maximum wait; negative for no limit.
  mutating func wait(milliseconds: Int32, into ready: inout [ReadyDescriptor])
}

/// A descriptor found ready.
struct ReadyDescriptor: Equatable {
  var descriptor: Int32
  var tag: UInt32
  var readiness: EventLoop.Readiness
}

#if os(Linux)
typealias SystemPoller = EpollPoller
#else
typealias SystemPoller = PollPoller
#endif

/// poll(2): the cost of a wait grows with the number of descriptors.
struct PollPoller: DescriptorPoller {
  private var polled: [pollfd] = []
  private var tags: [UInt32] = []
  private var slots: [Int32: Int] = [:]

  mutating func add(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt32) {
    slots[descriptor] = polled.count
    polled.append(pollfd(fd: descriptor, events: Self.events(interest), revents: 0))
    tags.append(tag)
  }

  mutating func update(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt32) {
    guard let slot = slots[descriptor] else { return }
    polled[slot].events = Self.events(interest)
    tags[slot] = tag
  }

  mutating func remove(_ descriptor: Int32) {
    guard let slot = slots.removeValue(forKey: descriptor) else { return }
    let last = polled.count - 1
    if slot != last {
      polled[slot] = polled[last]
      tags[slot] = tags[last]
      slots[polled[slot].fd] = slot
    }
    polled.removeLast()
    tags.removeLast()
  }

  mutating func wait(milliseconds: Int32, into ready: inout [ReadyDescriptor]) {
    ready.removeAll(keepingCapacity: true)
    let count = unsafe polled.withUnsafeMutableBufferPointer { buffer in
      unsafe poll(buffer.baseAddress, nfds_t(buffer.count), milliseconds)
    }
    guard count > 0 else { return }
    for (slot, entry) in polled.enumerated() where entry.revents != 0 {
      ready.append(
        ReadyDescriptor(descriptor: entry.fd, tag: tags[slot], readiness: Self.readiness(entry.revents)))
    }
  }

  private static func events(_ interest: EventLoop.Readiness) -> Int16 {
    (interest.contains(.readable) ? Int16(POLLIN) : 0) | (interest.contains(.writable) ? Int16(POLLOUT) : 0)
  }

  private static func readiness(_ found: Int16) -> EventLoop.Readiness {
    var readiness: EventLoop.Readiness = []
    if found & Int16(POLLIN) != 0 { readiness.insert(.readable) }
    if found & Int16(POLLOUT) != 0 { readiness.insert(.writable) }
    if found & Int16(POLLHUP | POLLERR | POLLNVAL) != 0 { readiness.insert(.hangup) }
    return readiness
  }
}

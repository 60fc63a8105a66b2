// epoll(7): the cost of a wait grows with the number of ready descriptors only.
//
// The kernel forgets a descriptor when it is closed. libpq and libcurl close their sockets before the loop is told. So removing a
// descriptor that is gone is not an error, and updating one adds it again.

#if os(Linux)
internal import CShims
internal import Glibc

/// See `DescriptorPoller`.
@safe
struct EpollPoller: DescriptorPoller {
  /// Maximum number of events in one wait. Further ones wait for the next turn; the kernel rotates among them.
  private static let eventsMax = 1024

  private let epoll: FileDescriptor
  private var events = unsafe [epoll_event](repeating: epoll_event(), count: eventsMax)
  /// Descriptors that the kernel did not accept, because they are closed or too many. They are reported as hung up, as poll(2)
  /// does.
  private var refused: [Int32: UInt32] = [:]

  init() {
    let descriptor = epoll_create1(Int32(EPOLL_CLOEXEC))
    precondition(descriptor >= 0, "no descriptor left for an event loop's epoll: raise the limit (ulimit -n)")
    epoll = FileDescriptor(owning: descriptor)
  }

  mutating func add(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt32) {
    if !control(EPOLL_CTL_ADD, descriptor, interest, tag) { refused[descriptor] = tag }
  }

  mutating func update(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt32) {
    guard refused[descriptor] == nil, !control(EPOLL_CTL_MOD, descriptor, interest, tag) else { return }
    add(descriptor, for: interest, tag: tag)
  }

  mutating func remove(_ descriptor: Int32) {
    guard refused.removeValue(forKey: descriptor) == nil else { return }
    _ = control(EPOLL_CTL_DEL, descriptor, [], 0)
  }

  mutating func wait(milliseconds: Int32, into ready: inout [ReadyDescriptor]) {
    ready.removeAll(keepingCapacity: true)
    let count = unsafe events.withUnsafeMutableBufferPointer { buffer in
      unsafe epoll_wait(
        epoll.rawValue, buffer.baseAddress, Int32(buffer.count), refused.isEmpty ? milliseconds : 0)
    }
    for index in 0..<max(0, Int(count)) {
      let data = unsafe events[index].data.u64
      ready.append(
        ReadyDescriptor(
          descriptor: Int32(truncatingIfNeeded: data), tag: UInt32(truncatingIfNeeded: data >> 32),
          readiness: unsafe Self.readiness(events[index].events)))
    }
    for (descriptor, tag) in refused {
      ready.append(ReadyDescriptor(descriptor: descriptor, tag: tag, readiness: .hangup))
    }
  }

  private func control(
    _ operation: Int32, _ descriptor: Int32, _ interest: EventLoop.Readiness, _ tag: UInt32
  ) -> Bool {
    let data = UInt64(tag) << 32 | UInt64(UInt32(bitPattern: descriptor))
    var event = unsafe epoll_event(events: Self.events(interest), data: epoll_data_t(u64: data))
    return unsafe epoll_ctl(epoll.rawValue, operation, descriptor, &event) == 0
  }

  private static func events(_ interest: EventLoop.Readiness) -> UInt32 {
    (interest.contains(.readable) ? EPOLLIN.rawValue : 0) | (interest.contains(.writable) ? EPOLLOUT.rawValue : 0)
  }

  private static func readiness(_ found: UInt32) -> EventLoop.Readiness {
    var readiness: EventLoop.Readiness = []
    if found & EPOLLIN.rawValue != 0 { readiness.insert(.readable) }
    if found & EPOLLOUT.rawValue != 0 { readiness.insert(.writable) }
    if found & (EPOLLHUP.rawValue | EPOLLERR.rawValue) != 0 { readiness.insert(.hangup) }
    return readiness
  }
}
#endif

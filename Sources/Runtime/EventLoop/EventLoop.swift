// An event loop on one thread: it runs actor jobs, watches descriptors and fires timers.
//
// libpq and libcurl own their sockets and only want to be told when one is ready, so the gateway has a loop of its own
// (docs/adr/0002). An actor whose `unownedExecutor` is a loop runs on the loop's thread; two actors on the same loop call each
// other without a hop, and code on the loop may use `assumeIsolated`.
//
// A turn runs the jobs that waited, the timers that are due and the work deferred so far; then it waits for descriptors, runs their
// handlers, and runs what was deferred meanwhile. Writes are deferred, so everything produced meanwhile leaves in one piece.

internal import CShims
internal import Synchronization

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// A serial executor on one thread that also watches file descriptors and timers.
///
/// Everything but `execute`, `enqueue` and `stop` may be called on the loop's own thread only.
// @unchecked: `inbox` is protected by its mutex; every other variable is touched by the loop's thread only, which each entry
// point checks with a precondition.
public final class EventLoop: SerialExecutor, @unchecked Sendable {
  /// Conditions of a descriptor, to wait for or found.
  public struct Readiness: OptionSet, Sendable {
    public let rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }
    public static let readable = Readiness(rawValue: 1)
    public static let writable = Readiness(rawValue: 2)
    /// The peer hung up, or the descriptor has an error. Always reported, even if not asked for.
    public static let hangup = Readiness(rawValue: 4)
  }

  /// A descriptor under watch. Change `interest` with `EventLoop.update`, end it with `EventLoop.unwatch`.
  public final class Watch {
    public let descriptor: Int32
    public fileprivate(set) var interest: Readiness
    /// Distinguishes it from an earlier watch of the same number.
    fileprivate let tag: UInt32
    fileprivate let handler: (Readiness) -> Void
    fileprivate init(descriptor: Int32, interest: Readiness, tag: UInt32, handler: @escaping (Readiness) -> Void) {
      self.descriptor = descriptor
      self.interest = interest
      self.tag = tag
      self.handler = handler
    }
  }

  /// A timer that has not fired. `cancel()` makes it never fire.
  public final class Timer {
    fileprivate var handler: (() -> Void)?
    fileprivate init(_ handler: @escaping () -> Void) { self.handler = handler }
    public var isPending: Bool { handler != nil }
    public func cancel() { handler = nil }
  }

  private enum Work {
    case job(UnownedJob)
    case closure(@Sendable () -> Void)
  }

  private struct Inbox {
    var work: [Work] = []
    var isAwake = true  // no wake-up byte is needed while true
    var isStopping = false
  }

  /// The loop's name, as debuggers and `top -H` show it; at most 15 characters are shown.
  public let name: String
  private let clock: any GatewayClock
  private let inbox = Mutex(Inbox())
  private let wakeUp: (read: FileDescriptor, write: FileDescriptor)
  private let threadID = Atomic<UInt>(0)

  // Touched by the loop's thread only.
  private var batch: [Work] = []
  private var watches: [Int32: Watch] = [:]
  private var watchCount: UInt32 = 0
  private var poller = SystemPoller()
  private var ready: [ReadyDescriptor] = []
  private var timers = DeadlineHeap<Timer>()
  private var endOfTurn: [() -> Void] = []
  /// How often deferred work may defer more before descriptors are looked at again.
  private static let roundsMax = 8

  /// Starts a loop on a new thread.
  public init(name: String, clock: any GatewayClock = SystemClock()) {
    self.name = name
    self.clock = clock
    guard let pipe = try? FileDescriptor.pipe() else {
      preconditionFailure("no descriptor left for an event loop's wake-up pipe: raise the limit (ulimit -n)")
    }
    wakeUp = pipe
    startThread()
  }

  // MARK: - From any thread

  public func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    append(.job(job))
  }

  /// Runs `closure` on the loop, after everything handed over before it. Never runs it inside this call.
  public func execute(_ closure: @escaping @Sendable () -> Void) {
    append(.closure(closure))
  }

  /// Ends the loop's thread after the turn under way. Nothing handed over later is run.
  public func stop() {
    inbox.withLock { $0.isStopping = true }
    wake()
  }

  public func asUnownedSerialExecutor() -> UnownedSerialExecutor {
    unsafe UnownedSerialExecutor(ordinary: self)
  }

  /// Whether the caller runs on this loop's thread.
  public var isCurrent: Bool { threadID.load(ordering: .relaxed) == Self.currentThreadID }

  public func isIsolatingCurrentContext() -> Bool? { isCurrent }

  public func checkIsolated() {
    precondition(isCurrent, "called off the thread of event loop \(name)")
  }

  // MARK: - On the loop

  /// The loop's time.
  public var now: Instant { clock.now() }

  /// Watches a descriptor until `unwatch`. The handler is called in every turn that finds it ready (level-triggered).
  ///
  /// A number has one watch. An earlier watch of the same number must belong to a closed descriptor; its handler is not called
  /// again.
  public func watch(
    _ descriptor: Int32, for interest: Readiness, _ handler: @escaping (Readiness) -> Void
  ) -> Watch {
    checkIsolated()
    if let former = watches[descriptor] { unwatch(former) }
    watchCount &+= 1
    let watch = Watch(descriptor: descriptor, interest: interest, tag: watchCount, handler: handler)
    watches[descriptor] = watch
    poller.add(descriptor, for: interest, tag: watch.tag)
    return watch
  }

  /// Changes what a watch waits for. An empty set waits only for a hang-up.
  public func update(_ watch: Watch, for interest: Readiness) {
    checkIsolated()
    guard watch.interest != interest, watches[watch.descriptor] === watch else { return }
    watch.interest = interest
    poller.update(watch.descriptor, for: interest, tag: watch.tag)
  }

  /// Ends a watch. Its handler is not called again, even if its descriptor was found ready in this turn. Must be called before the
  /// descriptor is closed, or immediately afterwards.
  public func unwatch(_ watch: Watch) {
    checkIsolated()
    guard watches[watch.descriptor] === watch else { return }
    watches[watch.descriptor] = nil
    poller.remove(watch.descriptor)
  }

  /// Calls `handler` once, at `instant` or soon after it.
  @discardableResult
  public func schedule(at instant: Instant, _ handler: @escaping () -> Void) -> Timer {
    checkIsolated()
    let timer = Timer(handler)
    timers.insert(timer, at: instant)
    if timers.count > 1024, timers.count & 1023 == 0 { timers.compact { $0.isPending } }
    return timer
  }

  /// Calls `handler` once at the end of this turn, after all jobs, timers and descriptors of the turn.
  public func atEndOfTurn(_ handler: @escaping () -> Void) {
    checkIsolated()
    endOfTurn.append(handler)
  }

  // MARK: - The thread

  private func append(_ work: Work) {
    let mustWake = inbox.withLock { inbox in
      inbox.work.append(work)
      if inbox.isAwake { return false }
      inbox.isAwake = true
      return true
    }
    if mustWake { wake() }
  }

  private func wake() {
    wakeUp.write.writeByte()
  }

  private static var currentThreadID: UInt {
    #if os(Linux)
    UInt(pthread_self())
    #else
    unsafe UInt(bitPattern: pthread_self())
    #endif
  }

  private func startThread() {
    #if os(Linux)
    var thread = pthread_t()
    #else
    var thread: pthread_t? = nil
    #endif
    let context = unsafe Unmanaged.passRetained(self).toOpaque()
    let status = unsafe pthread_create(
      &thread, nil,
      { context in
        #if os(Linux)
        guard let context = unsafe context else { return nil }
        #endif
        let loop = unsafe Unmanaged<EventLoop>.fromOpaque(context).takeRetainedValue()
        loop.run()
        return nil
      }, context)
    precondition(status == 0, "no thread left for event loop \(name)")
    #if os(Linux)
    pthread_detach(thread)
    #else
    if let thread = unsafe thread { unsafe pthread_detach(thread) }
    #endif
  }

  private func run() {
    threadID.store(Self.currentThreadID, ordering: .relaxed)
    unsafe shim_set_thread_name(name)
    _ = watch(wakeUp.read.rawValue, for: .readable) { [wakeUp] _ in wakeUp.read.drain() }
    while turn() {}
    threadID.store(0, ordering: .relaxed)
  }

  /// One turn; false when the loop was asked to stop.
  private func turn() -> Bool {
    let isStopping = inbox.withLock { inbox in
      swap(&inbox.work, &batch)
      return inbox.isStopping
    }
    if isStopping {
      while !endOfTurn.isEmpty { finishTurn() }
      return false
    }
    runBatch()
    fireTimers()
    finishTurn()
    poll()
    finishTurn()
    return true
  }

  private func runBatch() {
    let executor = unsafe asUnownedSerialExecutor()
    for work in batch {
      switch work {
      case .job(let job): unsafe job.runSynchronously(on: executor)
      case .closure(let closure): closure()
      }
    }
    batch.removeAll(keepingCapacity: true)
  }

  private func fireTimers() {
    guard !timers.isEmpty else { return }
    let now = clock.now()
    while let timer = timers.popDue(now) {
      guard let handler = timer.handler else { continue }
      timer.handler = nil
      handler()
    }
  }

  /// Runs the deferred work, and what that defers in turn. If there is no end of it, the rest waits until descriptors and timers
  /// have been looked at.
  private func finishTurn() {
    for _ in 0..<Self.roundsMax {
      if endOfTurn.isEmpty { return }
      let handlers = endOfTurn
      endOfTurn.removeAll(keepingCapacity: true)
      for handler in handlers { handler() }
    }
  }

  private func poll() {
    let mayBlock = inbox.withLock { inbox in
      inbox.isAwake = !inbox.work.isEmpty || inbox.isStopping
      return !inbox.isAwake
    }
    poller.wait(milliseconds: mayBlock && endOfTurn.isEmpty ? timeout() : 0, into: &ready)
    inbox.withLock { $0.isAwake = true }
    for found in ready {
      // An earlier handler may have ended this watch, and another descriptor may have its number.
      guard let watch = watches[found.descriptor], watch.tag == found.tag else { continue }
      watch.handler(found.readiness)
    }
  }

  /// Milliseconds until the next timer, rounded up so that a turn never comes too early; -1 without one.
  private func timeout() -> Int32 {
    guard let earliest = timers.earliest else { return -1 }
    let wait = (earliest - clock.now()).count
    return wait <= 0 ? 0 : Int32(clamping: (wait + 999_999) / 1_000_000)
  }
}

// What runs on a simulator's event loop: accepts connections, asks the rules, keeps the journal, wakes who waits for
// pushes.

internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// The state of one listening simulator. Confined to its loop; `SimulatorServer` is its door.
final class SimulatorCore {
  /// The log is written at the latest this long after a line was made.
  private static let logDelay = Nanoseconds.milliseconds(50)
  /// The log is written at once when at least this number of bytes is waiting.
  private static let logBytesMax = 256 * 1024

  private struct Waiter {
    let count: Int
    let continuation: CheckedContinuation<Void, Never>
  }

  let loop: EventLoop
  let options: SimulatorServer.Options
  /// SETTINGS_MAX_CONCURRENT_STREAMS, as it is now.
  private(set) var streamsMax: UInt32
  var service: any SimulatedService
  private(set) var journal: SimulatorJournal
  private let tls: TLSContext
  private let listener: TCPListener
  private var log: SimulatorLog?
  private var date = ResponseDate()
  private var logTimer: EventLoop.Timer?
  private var connections: [ObjectIdentifier: SimulatorConnection] = [:]
  private var waiters: [Waiter] = []

  init(
    service: any SimulatedService, options: SimulatorServer.Options, tls: TLSContext, listener: TCPListener,
    loop: EventLoop, log: SimulatorLog?
  ) {
    self.service = service
    self.options = options
    streamsMax = options.streamsMax
    self.tls = tls
    self.listener = listener
    self.loop = loop
    self.log = log
    journal = SimulatorJournal(options: options.journal)
  }

  func start() {
    listener.start { [weak self] socket in self?.accept(socket) }
  }

  /// Stops accepting, says GOAWAY to every client, and writes the log to its end.
  func stop() {
    listener.close()
    for connection in connections.values { connection.sayFarewell() }
    connections.removeAll()
    writeLog()
    log = nil
    stopWaiting()
  }

  func limitStreams(to streamsMax: UInt32) {
    self.streamsMax = streamsMax
    for connection in connections.values { connection.limitStreams() }
  }

  /// Closes every connection without a word, as a failing network does.
  func dropConnections() {
    for connection in connections.values { connection.close() }
    connections.removeAll()
  }

  /// Says GOAWAY on every connection and lets it finish what it has.
  func goAway(reason: String) {
    for connection in connections.values { connection.goAway(reason: reason) }
  }

  func remove(_ connection: SimulatorConnection) {
    connections[ObjectIdentifier(connection)] = nil
  }

  func forgetAccepted() { journal.forgetAccepted() }

  var openConnections: Int { connections.count }

  /// Resumes when at least `count` pushes have been accepted since the start, or at `stop`.
  func wait(for count: Int, _ continuation: CheckedContinuation<Void, Never>) {
    if journal.counters.accepted >= count { return continuation.resume() }
    waiters.append(Waiter(count: count, continuation: continuation))
  }

  /// Resumes all who wait.
  func stopWaiting() {
    for waiter in waiters { waiter.continuation.resume() }
    waiters.removeAll()
  }

  // MARK: - For the connections

  /// Asks the rules about one request.
  func answer(_ request: SimulatedRequest, on memory: inout ConnectionMemory) -> SimulatedAnswer {
    journal.counters.requests += 1
    let accepted = journal.accepted.count
    let answer = service.respond(to: request, on: &memory, at: SystemClock().wallMicroseconds(), journal: &journal)
    journal.stamp(from: accepted, connection: request.connection, stream: request.stream)
    return answer
  }

  /// A connection says GOAWAY and processes nothing above `lastStream`.
  func didCutOff(_ connection: Int, lastStream: Int32) {
    journal.cutOffs.append(CutOff(connection: connection, lastStream: lastStream))
  }

  /// A request came on a stream above its connection's last one.
  func didDrop(on connection: Int) {
    guard let index = journal.cutOffs.lastIndex(where: { $0.connection == connection }) else { return }
    journal.cutOffs[index].dropped += 1
  }

  /// The value of `date` for an answer that is given now.
  func dateText() -> [UInt8] { date.text(at: SystemClock().wallMicroseconds() / 1_000_000 + options.clockOffset) }

  /// Called after a batch of answers.
  func didAnswer() {
    if !waiters.isEmpty { wakeWaiters() }
    guard !journal.pendingLines.isEmpty else { return }
    if journal.pendingLines.count >= Self.logBytesMax { return writeLog() }
    guard logTimer == nil else { return }
    logTimer = loop.schedule(at: loop.now + Self.logDelay) { [weak self] in self?.writeLog() }
  }

  private func accept(_ socket: FileDescriptor) {
    journal.counters.connections += 1
    let number = journal.counters.connections
    guard let connection = SimulatorConnection(socket, number: number, tls: tls, core: self) else { return }
    connections[ObjectIdentifier(connection)] = connection
    connection.start()
  }

  private func wakeWaiters() {
    let accepted = journal.counters.accepted
    waiters.removeAll { waiter in
      guard accepted >= waiter.count else { return false }
      waiter.continuation.resume()
      return true
    }
  }

  private func writeLog() {
    logTimer?.cancel()
    logTimer = nil
    guard !journal.pendingLines.isEmpty else { return }
    log?.write(journal.pendingLines)
    journal.pendingLines.removeAll(keepingCapacity: true)
  }
}

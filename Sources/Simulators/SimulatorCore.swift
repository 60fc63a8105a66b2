// The part of a simulator that runs on its event loop: it accepts connections, applies the rules, keeps the journal,
// and resumes tasks that wait for pushes.

internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// The state of one listening simulator, confined to its loop. `SimulatorServer` is its public interface.
final class SimulatorCore {
  /// Maximum time between a log line and its write to the file.
  private static let logDelay = Nanoseconds.milliseconds(50)
  /// Number of waiting bytes at which the log is written at once.
  private static let logBytesMax = 256 * 1024

  private struct Waiter {
    let count: Int
    let continuation: CheckedContinuation<Void, Never>
  }

  let loop: EventLoop
  let options: SimulatorServer.Options
  /// The current SETTINGS_MAX_CONCURRENT_STREAMS.
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

  /// Stops accepting, sends GOAWAY to every client, and writes all waiting log lines.
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

  /// Closes every connection without a GOAWAY, as a failing network does.
  func dropConnections() {
    for connection in connections.values { connection.close() }
    connections.removeAll()
  }

  /// Sends GOAWAY on every connection; open streams are still answered.
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

  /// Resumes all waiting tasks.
  func stopWaiting() {
    for waiter in waiters { waiter.continuation.resume() }
    waiters.removeAll()
  }

  // MARK: - For the connections

  /// Applies the rules to one request.
  func answer(_ request: SimulatedRequest, on memory: inout ConnectionMemory) -> SimulatedAnswer {
    journal.counters.requests += 1
    let accepted = journal.accepted.count
    let answer = service.respond(to: request, on: &memory, at: SystemClock().wallMicroseconds(), journal: &journal)
    journal.stamp(from: accepted, connection: request.connection, stream: request.stream)
    return answer
  }

  /// A connection sends GOAWAY and processes no stream above `lastStream`.
  func didCutOff(_ connection: Int, lastStream: Int32) {
    journal.cutOffs.append(CutOff(connection: connection, lastStream: lastStream))
  }

  /// A request arrived on a stream above its connection's last one.
  func didDrop(on connection: Int) {
    guard let index = journal.cutOffs.lastIndex(where: { $0.connection == connection }) else { return }
    journal.cutOffs[index].dropped += 1
  }

  /// The value of `date` for an answer sent now.
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

// A simulator that listens on a port: the interface to the state on its event loop.

public import Runtime

/// One provider's rules behind a TLS + HTTP/2 listener on a thread of its own.
///
/// Clients must offer `h2` by ALPN; others are refused in the TLS handshake.
public actor SimulatorServer {
  /// How a simulator listens.
  public struct Options: Sendable {
    /// An IP address, by default the loopback address.
    public var address: String
    /// 0 lets the system choose.
    public var port: UInt16
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    public var streamsMax: UInt32
    /// Seconds by which the clock for the `date` of answers is fast.
    public var clockOffset: Int64
    /// APNs: maximum number of streams before the first authorised request on a connection; nil for no such limit.
    public var streamsMaxBeforeAuthorisation: UInt32?
    public var journal: SimulatorJournal.Options
    /// The file accepted pushes are appended to, one JSON line each; nil for none. Needs `journal.logs`.
    public var logFile: String?

    public init(
      address: String = "127.0.0.1", port: UInt16 = 0, streamsMax: UInt32 = 1_000,
      streamsMaxBeforeAuthorisation: UInt32? = nil, clockOffset: Int64 = 0,
      journal: SimulatorJournal.Options = .init(), logFile: String? = nil
    ) {
      self.address = address
      self.port = port
      self.streamsMax = streamsMax
      self.streamsMaxBeforeAuthorisation = streamsMaxBeforeAuthorisation
      self.clockOffset = clockOffset
      self.journal = journal
      self.logFile = logFile
    }
  }

  public nonisolated let loop: EventLoop
  /// The port it listens on.
  public nonisolated let port: UInt16
  private let core: SimulatorCore

  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  /// Binds the port and creates the thread. Connections are accepted after `start()`.
  ///
  /// - Parameters:
  ///   - name: the thread's name.
  ///   - tls: a server's context for `h2`.
  ///   - service: creates the rules. Its argument is the port, which is a part of the token endpoint's audience.
  /// - Throws: the system's error if the port or the log file cannot be opened.
  public init(
    name: String, options: Options, tls: TLSContext, service: @Sendable (UInt16) -> any SimulatedService
  ) throws(FileDescriptor.SystemError) {
    guard let address = SocketAddress(numericHost: options.address, port: options.port) else {
      throw FileDescriptor.SystemError(call: "listen on \(options.address), which is no address in digits", code: 22)
    }
    let log = try options.logFile.map { path throws(FileDescriptor.SystemError) in try SimulatorLog(path: path) }
    let loop = EventLoop(name: name)
    let listener: TCPListener
    do throws(FileDescriptor.SystemError) {
      listener = try TCPListener(on: address, loop: loop)
    } catch {
      loop.stop()
      throw error
    }
    self.loop = loop
    port = listener.port
    core = SimulatorCore(
      service: service(listener.port), options: options, tls: tls, listener: listener, loop: loop, log: log)
  }

  /// Accepts connections from now on.
  public func start() { core.start() }

  /// Stops accepting, sends GOAWAY, closes every connection, writes all waiting log lines and ends the thread.
  ///
  /// No method may be called after this, because the thread has ended.
  /// - Returns: the counters at the end.
  @discardableResult
  public func stop() -> SimulatorCounters {
    core.stop()
    loop.stop()
    return core.journal.counters
  }

  // MARK: - Faults

  /// Replaces the fault plan. Requests that are being answered keep their faults.
  public func setFaults(_ plan: FaultPlan) { core.service.setFaults(plan) }

  /// Changes SETTINGS_MAX_CONCURRENT_STREAMS on all current and future connections.
  public func limitStreams(to streamsMax: UInt32) { core.limitStreams(to: streamsMax) }

  /// Closes every connection without a GOAWAY.
  public func dropConnections() { core.dropConnections() }

  /// Sends GOAWAY on every connection; open streams are still answered.
  public func goAway(reason: String = "") { core.goAway(reason: reason) }

  // MARK: - What was seen

  /// The accepted pushes in order; empty unless the journal keeps them.
  public var accepted: [AcceptedPush] { core.journal.accepted }
  public var counters: SimulatorCounters { core.journal.counters }
  /// The GOAWAYs after which later streams were dropped, in order.
  public var cutOffs: [CutOff] { core.journal.cutOffs }
  public var openConnections: Int { core.openConnections }

  /// Waits until at least `count` pushes have been accepted since the start, or the simulator was stopped. Returns the
  /// pushes that the journal keeps.
  ///
  /// - Throws: `CancellationError` if the task is cancelled first.
  @discardableResult
  public func waitForAccepted(_ count: Int) async throws -> [AcceptedPush] {
    await withTaskCancellationHandler {
      await withCheckedContinuation { core.wait(for: count, $0) }
    } onCancel: {
      Task { await self.stopWaiting() }
    }
    try Task.checkCancellation()
    return core.journal.accepted
  }

  private func stopWaiting() { core.stopWaiting() }

  /// Discards the kept pushes; the counters continue.
  public func forgetAccepted() { core.forgetAccepted() }
}

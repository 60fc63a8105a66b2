// A server with one outbox in memory, for tests that use the asynchronous interface.

public import Queue
public import Runtime

/// Executes statements one after the other, with a clock that tests can advance.
public actor MemoryOutboxServer {
  private var outbox: MemoryOutbox
  private let clock: any GatewayClock
  /// Time by which the server's clock was advanced.
  private var advance = Nanoseconds.zero

  public init(_ outbox: MemoryOutbox = MemoryOutbox(), clock: any GatewayClock = SystemClock()) {
    self.outbox = outbox
    self.clock = clock
  }

  /// Executes a statement.
  public func execute<Answer: Sendable>(
    _ statement: @Sendable (inout MemoryOutbox, DatabaseTime) throws(OutboxError) -> Answer
  ) throws(OutboxError) -> Answer {
    try statement(&outbox, now)
  }

  /// A gateway whose connections are up. It has not registered.
  public nonisolated func makeGateway(name: String = "gateway") -> MemoryOutboxStore {
    MemoryOutboxStore(server: self, name: name, clock: clock)
  }

  /// Advances the clock.
  public func advance(by duration: Nanoseconds) { advance = advance + duration }

  private var now: DatabaseTime { (clock.now().nanoseconds + advance.count) / 1_000 + 1_750_000_000_000_000 }
}

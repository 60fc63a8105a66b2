// A simulator's record of its requests: always counters, on request the pushes themselves, and log lines until they are
// written.

internal import Runtime

/// Counts of one simulator since its start.
public struct SimulatorCounters: Sendable, Equatable {
  /// Accepted pushes.
  public var accepted = 0
  /// Pushes and requests refused, by the provider's reason.
  public var refused: [String: Int] = [:]
  /// Accepted pushes that broke a rule of the calls' protocol, by the rule.
  public var violations: [String: Int] = [:]
  /// All requests, answered or not.
  public var requests = 0
  /// Connections accepted.
  public var connections = 0

  public init() {}
}

/// A GOAWAY after which a connection processed nothing new.
public struct CutOff: Sendable, Equatable {
  /// The number of the connection on its listener, counted from 1.
  public var connection: Int
  /// The last-stream-id of the GOAWAY.
  public var lastStream: Int32
  /// Complete requests that arrived on later streams and were dropped.
  public var dropped = 0
}

/// The journal. The verifiers write to it; the server takes its log lines.
public struct SimulatorJournal: Sendable {
  /// What to record.
  public struct Options: Sendable {
    /// Keep every accepted push in memory, for tests.
    public var keepsAccepted: Bool
    /// Write lines for the log.
    public var logs: Bool
    /// Also write a line for each refusal.
    public var logsRefused: Bool
    /// Called for every accepted push, on the simulator's loop.
    public var observer: (@Sendable (AcceptedPush) -> Void)?

    public init(
      keepsAccepted: Bool = true, logs: Bool = false, logsRefused: Bool = false,
      observer: (@Sendable (AcceptedPush) -> Void)? = nil
    ) {
      self.keepsAccepted = keepsAccepted
      self.logs = logs
      self.logsRefused = logsRefused
      self.observer = observer
    }
  }

  public let options: Options
  public internal(set) var counters = SimulatorCounters()
  /// The accepted pushes in order; empty unless they are kept.
  public private(set) var accepted: [AcceptedPush] = []
  /// The GOAWAYs after which later streams were dropped, in order.
  public internal(set) var cutOffs: [CutOff] = []
  /// Log lines that the server has not yet taken.
  var pendingLines: [UInt8] = []

  public init(options: Options = Options()) {
    self.options = options
  }

  mutating func accept(_ push: AcceptedPush) {
    counters.accepted += 1
    if let violation = push.violation { counters.violations[violation.rawValue, default: 0] += 1 }
    options.observer?(push)
    if options.keepsAccepted { accepted.append(push) }
    if options.logs { push.appendLine(to: &pendingLines) }
  }

  /// - Parameter detail: what was wrong, without any token or payload.
  mutating func refuse(
    _ provider: SimulatedProvider, status: Int, reason: String, detail: String = "", at now: Int64
  ) {
    counters.refused[reason, default: 0] += 1
    guard options.logsRefused else { return }
    var writer = JSONWriter(reservingCapacity: 160)
    LogTime.beginLine(at: now, in: &writer)
    writer.key("outcome")
    writer.string("refused")
    writer.key("provider")
    writer.string(provider.rawValue)
    writer.key("status")
    writer.integer(Int64(status))
    writer.key("reason")
    writer.string(reason)
    if !detail.isEmpty {
      writer.key("detail")
      writer.string(detail)
    }
    writer.endObject()
    pendingLines.append(contentsOf: writer.bytes)
    pendingLines.append(0x0A)
  }

  /// Notes which stream the pushes after the first `count` came on.
  mutating func stamp(from count: Int, connection: Int, stream: Int32) {
    for index in accepted.indices.dropFirst(count) {
      accepted[index].connection = connection
      accepted[index].stream = stream
    }
  }

  mutating func forgetAccepted() { accepted.removeAll() }
}

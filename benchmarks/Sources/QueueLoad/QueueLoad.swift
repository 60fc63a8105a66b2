// Claims and settles through the gateway's outbox as fast as possible: while one batch is settled, the next is claimed.

import Logging
import Queue
import Runtime
import Synchronization

/// One replica that sends nothing. An actor on the outbox's loop.
actor QueueLoad {
  struct Options: Sendable {
    var url = ""
    /// Maximum number of deliveries of a claim, over all lanes.
    var batch = 500
    /// Run for this time, and poll when there is nothing; nil: until the outbox is empty.
    var duration: Nanoseconds?
  }

  /// The results.
  struct Work: Sendable {
    var settled = 0
    var claims = 0
    var settlements = 0
    /// Bytes of tokens and payloads.
    var bytes = 0
    /// From the first claim to the answer to the last settlement.
    var took = Nanoseconds.zero
  }

  struct Failure: Error, CustomStringConvertible {
    var description: String
  }

  private static let beatInterval = Nanoseconds.seconds(1)
  /// Only a claim that sweeps below the floor shows that nothing is left; in this time there was one.
  private static let patience = Nanoseconds.milliseconds(500)

  private struct Lane: Sendable {
    var id: Int16
    var isExpo: Bool
  }

  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }
  private let options: Options
  private var expoLanes: Set<Int16> = []
  private var work = Work()
  private var claimed = 0

  init(_ options: Options, loop: EventLoop) {
    self.options = options
    self.loop = loop
  }

  /// Connects, works and disconnects.
  func run() async throws -> Work {
    let lanes = try await lanes()
    expoLanes = Set(lanes.filter(\.isExpo).map(\.id))
    let outbox = PostgresOutbox(
      options: .init(url: options.url, name: "queue-load", version: "benchmark"), loop: loop,
      logger: Logger(label: "queue-load") { StreamLogHandler.standardError(label: $0) })
    try await open(outbox)
    try await outbox.register()
    try await drain(outbox, lanes.map { LaneAllowance(lane: $0.id, limit: Int32(options.batch)) })
    await outbox.close()
    guard work.settled == claimed else { throw Failure(description: "claimed \(claimed), settled \(work.settled)") }
    return work
  }

  private func lanes() async throws -> [Lane] {
    let connection = try await PostgresConnection.connect(
      to: options.url, applicationName: "queue-load", on: loop)
    let result = try await connection.query(
      PostgresStatement(name: "lanes", sql: "select id, provider = 'expo' from push.lane order by id"))
    await connection.close()
    guard result.rowCount > 0 else { throw Failure(description: "the database has no lanes; enqueue something first") }
    return (0..<result.rowCount).map { Lane(id: result.int16($0, 0), isExpo: result.bool($0, 1)) }
  }

  private func open(_ outbox: PostgresOutbox) async throws {
    let outcome: Result<Void, Failure> = await withCheckedContinuation { continuation in
      let waiting = Mutex<CheckedContinuation<Result<Void, Failure>, Never>?>(continuation)
      let answer: @Sendable (Result<Void, Failure>) -> Void = { outcome in
        waiting.withLock { $0.take() }?.resume(returning: outcome)
      }
      Task {
        await outbox.open { event in
          switch event {
          case .available: answer(.success(()))
          case .unavailable(let reason): answer(.failure(Failure(description: reason)))
          default: break
          }
        }
      }
    }
    try outcome.get()
  }

  private func beat(_ outbox: PostgresOutbox) async throws {
    guard try await outbox.beat(mayReap: false) else { throw Failure(description: "the gateway was declared dead") }
  }

  private func drain(_ outbox: PostgresOutbox, _ allowances: [LaneAllowance]) async throws {
    let limits = ClaimLimits(inAll: Int32(options.batch))
    try await beat(outbox)
    let start = loop.now
    var nextBeat = start + Self.beatInterval
    let end = options.duration.map { start + $0 }
    var settling: Task<Int, any Error>?
    var lastFound = start
    while true {
      work.claims += 1
      let answer = try await outbox.claim(Int32(work.claims), allowances, within: limits)
      guard answer.unreadable.isEmpty else { throw Failure(description: "a claim brought rows of an unknown kind") }
      let deliveries = answer.deliveries
      claimed += deliveries.count
      if !deliveries.isEmpty { lastFound = loop.now }
      try await finish(settling, start)
      settling = deliveries.isEmpty ? nil : settle(deliveries, outbox)
      if loop.now >= nextBeat {
        nextBeat = loop.now + Self.beatInterval
        try await beat(outbox)
      }
      if let end, loop.now >= end { break }
      guard deliveries.isEmpty else { continue }
      if end == nil, loop.now >= lastFound + Self.patience { break }
      await pause()
    }
    try await finish(settling, start)
  }

  private func finish(_ settling: Task<Int, any Error>?, _ start: Instant) async throws {
    guard let settling else { return }
    work.settled += try await settling.value
    work.took = loop.now - start
  }

  /// Delivered, each with a provider's id; Expo pushes also have a receipt to be read later.
  private func settle(_ deliveries: [Delivery], _ outbox: PostgresOutbox) -> Task<Int, any Error> {
    let now = loop.now
    let settlements = deliveries.map { delivery in
      work.bytes += delivery.token.count + delivery.payload.count
      return Settlement(
        delivery, outcome: .delivered, attempts: delivery.attempt, status: 200,
        providerMessageID: Self.messageID(delivery.lease), sentAt: now, answeredAt: now,
        receiptAfter: expoLanes.contains(delivery.lane) ? .seconds(900) : nil)
    }
    work.settlements += 1
    return Task { try await outbox.settle(settlements) }
  }

  /// A text with the form and length of a UUID.
  private static func messageID(_ lease: DeliveryLease) -> String {
    let number = String(lease.pushNumber, radix: 16), call = String(lease.outboxID, radix: 16)
    return String(repeating: "0", count: 8 - number.utf8.count) + number + "-0000-4000-8000-"
      + String(repeating: "0", count: 12 - call.utf8.count) + call
  }

  private func pause() async {
    await withCheckedContinuation { continuation in
      _ = loop.schedule(at: loop.now + .milliseconds(5)) { continuation.resume() }
    }
  }
}

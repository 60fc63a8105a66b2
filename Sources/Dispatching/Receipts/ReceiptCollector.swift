// Expo's receipts. A ticket means that Expo accepted a push; the receipt says whether APNs or FCM did.
//
// Tickets are in push.receipt_batch, written with the settlement. Each replica looks for due ones, and claims a batch so that no
// other replica asks for the same. Receipts are applied like answers: to tokens, circuits and throttles.

public import Logging
public import Providers
public import Queue
public import Runtime

/// Reads the receipts of one app. An actor on the gateway's loop.
public actor ReceiptCollector {
  /// Asks Expo.
  public typealias Read = @Sendable (_ tickets: [String]) async -> ExpoReceiptsAnswer
  /// Called with the failures and their tokens.
  public typealias Report = @Sendable (_ failures: [ReceiptFailure]) async -> Void

  /// Maximum number of tickets in one request to Expo.
  private static let batchMax = 1000
  /// How long a batch is ours. If this replica dies, another one asks again after that.
  private static let lease = Nanoseconds.seconds(60)

  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  public let app: String
  private let receiptAfter: Nanoseconds
  private let store: any ReceiptStore
  private let read: Read
  private let report: Report
  private let logger: Logger
  private var schedule: ReceiptSchedule
  private var timer: EventLoop.Timer?
  private var isStopped = false
  /// Number of tickets whose receipts did not come within 24 hours.
  public private(set) var givenUpCount = 0

  /// - Parameters:
  ///   - receiptAfter: how long after sending a receipt can be read.
  ///   - read: asks Expo.
  ///   - report: called with the failures and their tokens.
  public init(
    app: String, receiptAfter: Nanoseconds, store: any ReceiptStore, loop: EventLoop, logger: Logger,
    read: @escaping Read, report: @escaping Report
  ) {
    self.app = app
    self.receiptAfter = receiptAfter
    self.store = store
    self.loop = loop
    self.logger = logger
    self.read = read
    self.report = report
    schedule = ReceiptSchedule(receiptAfter: receiptAfter)
  }

  /// Starts to look for due receipts.
  public func start() { plan() }

  /// Stops looking.
  public func stop() {
    isStopped = true
    timer?.cancel()
  }

  private func plan() {
    guard !isStopped else { return }
    timer = loop.schedule(at: max(loop.now, schedule.next)) { [weak self] in
      self?.assumeIsolated { collector in
        _ = Task { await collector.collect() }
      }
    }
  }

  private func collect() async {
    do throws(OutboxError) {
      try await forgetOld()
      let due = try await store.claimReceipts(app: app, max: Self.batchMax, lease: Self.lease)
      if due.isEmpty {
        schedule.didRead(isFull: false, loop.now)
      } else {
        try await look(up: due)
      }
    } catch {
      logger.debug("Receipts wait: the database did not answer", metadata: ["app": "\(app)", "reason": "\(error)"])
      schedule.didFail(after: nil, loop.now)
    }
    plan()
  }

  private func forgetOld() async throws(OutboxError) {
    let givenUp = try await store.giveUpReceipts(app: app)
    guard givenUp > 0 else { return }
    givenUpCount += givenUp
    logger.warning(
      "Receipts never came; what became of these pushes is not known",
      metadata: ["app": "\(app)", "count": .stringConvertible(givenUp)])
  }

  private func look(up due: [DueReceipt]) async throws(OutboxError) {
    switch await read(due.map(\.ticket)) {
    case .failed(let outcome):
      await report([ReceiptFailure(token: [], outcome: outcome)])
      let wanted: Nanoseconds? =
        switch outcome {
        case .throttled(_, let after, _), .unavailable(_, let after): after
        default: nil
        }
      schedule.didFail(after: wanted, loop.now)
    case .receipts(let found):
      let reading = ReceiptReading(found, of: due)
      if !reading.failures.isEmpty { await report(reading.failures) }
      if !reading.results.isEmpty { _ = try await store.settleReceipts(app: app, reading.results) }
      if !reading.missing.isEmpty {
        _ = try await store.postponeReceipts(app: app, reading.missing, by: receiptAfter)
      }
      schedule.didRead(isFull: due.count == Self.batchMax, loop.now)
    }
  }
}

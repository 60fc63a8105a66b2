// Expo's second word on a push: a ticket says that Expo took it, the receipt whether Apple or Google did.
//
// Tickets are rows of push.expo_receipts, written with the settlement. Each replica looks for due ones, and claims a batch so
// that no other asks for the same; what it learns goes the way that answers go: to tokens, circuits and throttles.

import Logging
import Providers
import Queue
import Runtime

/// Reads the receipts of one app. An actor on the gateway's loop.
actor ReceiptCollector {
  /// Running totals.
  struct Counters: Sendable, Equatable {
    var ok = 0
    var failed = 0
    /// Tickets whose receipts never came within 24 hours.
    var givenUp = 0
  }

  typealias Read = @Sendable (_ tickets: [String]) async -> ExpoReceiptsAnswer
  typealias Report = @Sendable (_ outcomes: [(token: [UInt8], outcome: PushOutcome)]) async -> Void

  /// Expo answers for at most so many tickets at a time.
  private static let batchMax = 1000
  /// How long a batch is ours. If we die with it, another replica asks again.
  private static let lease = Nanoseconds.seconds(60)

  nonisolated let loop: EventLoop
  nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  let app: String
  private let receiptAfter: Nanoseconds
  private let store: any ReceiptStore
  private let read: Read
  private let report: Report
  private let logger: Logger
  private var schedule: ReceiptSchedule
  private var timer: EventLoop.Timer?
  private var isStopped = false
  private(set) var counters = Counters()

  /// - Parameters:
  ///   - receiptAfter: how long after sending a receipt can be read.
  ///   - read: asks Expo.
  ///   - report: takes what was said of which token, failures only.
  init(
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

  func start() { plan() }

  func stop() {
    isStopped = true
    timer?.cancel()
  }

  private func plan() {
    guard !isStopped else { return }
    timer = loop.schedule(at: max(loop.now, schedule.next)) { [weak self] in
      guard let self else { return }
      assumeIsolated { collector in
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
    counters.givenUp += givenUp
    logger.warning(
      "Receipts never came; what became of these pushes is not known",
      metadata: ["app": "\(app)", "count": "\(givenUp)"])
  }

  private func look(up due: [DueReceipt]) async throws(OutboxError) {
    switch await read(due.map(\.ticket)) {
    case .failed(let outcome):
      await report([(token: [], outcome: outcome)])
      schedule.didFail(after: outcome.retryAfter, loop.now)
    case .receipts(let found):
      var verdicts: [ReceiptVerdict] = []
      var missing: [String] = []
      var failures: [(token: [UInt8], outcome: PushOutcome)] = []
      for receipt in due {
        guard let outcome = found[receipt.ticket] else {
          missing.append(receipt.ticket)
          continue
        }
        let reason = outcome.failureReason
        verdicts.append(ReceiptVerdict(ticket: receipt.ticket, reason: reason))
        if reason != nil { failures.append((receipt.token, outcome.about(receipt))) }
      }
      counters.ok += verdicts.count - failures.count
      counters.failed += failures.count
      if !failures.isEmpty { await report(failures) }
      if !verdicts.isEmpty { _ = try await store.settleReceipts(app: app, verdicts) }
      if !missing.isEmpty { _ = try await store.postponeReceipts(app: app, missing, by: receiptAfter) }
      schedule.didRead(isFull: due.count == Self.batchMax, loop.now)
    }
  }
}

extension PushOutcome {
  /// Why a push did not arrive; nil for success.
  fileprivate var failureReason: String? {
    switch self {
    case .accepted: nil
    case .tokenInvalid(let reason, _), .rejected(let reason), .throttled(let reason, _, _), .unavailable(let reason, _),
      .unauthorized(let reason), .refused(let reason), .unknown(let reason):
      reason
    case .expired: "DeadlinePassed"
    }
  }

  fileprivate var retryAfter: Nanoseconds? {
    switch self {
    case .throttled(_, let after, _), .unavailable(_, let after): after
    default: nil
    }
  }

  /// The token was dead when the push was sent: one that was registered since is another.
  fileprivate func about(_ receipt: DueReceipt) -> PushOutcome {
    guard case .tokenInvalid(let reason, _) = self else { return self }
    return .tokenInvalid(reason: reason, since: receipt.sentAtMilliseconds)
  }
}

// The metric families of what this replica has counted.

import Dispatching
import Providers
import PushModel
import Queue
import Runtime
import Webhooks

extension ExpositionWriter {
  mutating func write(attemptsAndDeliveries counters: DispatcherCounters) {
    let lanes = counters.lanes.filter { !$0.isSilent }
    family(
      "push_gateway_attempts_total", .counter, "Attempts by the provider's answer; a lost answer is unknown")
    for lane in lanes { sample(lane.attempts, { "\($0)" }, of: lane) }
    family("push_gateway_deliveries_total", .counter, "Deliveries that have ended, as in push.delivery_history")
    for lane in lanes { sample(lane.deliveries, \.word, of: lane) }
    sample(
      "push_gateway_enqueue_to_send_seconds", "Time from the commit of a call until its first request was sent",
      lanes,
      \.enqueueToSend)
    sample("push_gateway_send_to_answer_seconds", "Time from a request until its answer", lanes, \.sendToAnswer)
    sample(
      "push_gateway_enqueue_to_answer_seconds", "Time from the commit of a call until the provider accepted a push",
      lanes,
      \.enqueueToAnswer)
    sample(
      "push_gateway_ambiguous_total", "Attempts without an answer, which may have reached the phone", lanes, \.ambiguous
    )
    sample(
      "push_gateway_expired_before_send_total", "Deliveries whose deadline passed before a request was sent",
      lanes,
      \.expiredBeforeSend)
    sample("push_gateway_invalidated_tokens_total", "Tokens found dead", lanes, \.invalidatedTokens)
    sample(
      "push_gateway_quarantined_tokens_total", "Tokens found dead while the lane's invalidation is on hold", lanes,
      \.quarantinedTokens)
    family("push_gateway_circuit_openings_total", .counter, "Number of times that a lane's circuit opened")
    for lane in lanes {
      for reason in LaneCounters.OpeningReason.allCases {
        sample(
          lane.circuitOpenings[reason] ?? 0,
          ["app": lane.name.app, "provider": lane.name.channel, "reason": reason.rawValue])
      }
    }
  }

  /// - Parameter apps: apps whose series exist although they have no webhook.
  mutating func write(_ webhooks: [(app: String, counts: [WebhookCounters.Result: Int])], apps: [String]) {
    let known = Set(webhooks.map(\.app))
    family("push_gateway_webhook_requests_total", .counter, "Requests to receivers of webhooks, by result")
    let silent = apps.filter { !known.contains($0) }
    let all = webhooks + silent.map { (app: $0, counts: [WebhookCounters.Result: Int]()) }
    for (app, counts) in all {
      for result in WebhookCounters.Result.allCases {
        sample(counts[result] ?? 0, ["app": app, "result": result.rawValue])
      }
    }
  }

  mutating func write(apps snapshot: MetricsSnapshot) {
    let apps = snapshot.counters.apps.filter { !$0.isSilent }
    family("push_gateway_calls_total", .counter, "Calls enqueued; each is counted by one replica")
    for app in apps { sample(app.calls, ["app": app.app]) }
    family(
      "push_gateway_quota_refusals_total", .counter,
      "Statements and requests that enqueue, refused because of the app's quota; counted like calls_total")
    for app in apps { sample(app.quotaRefusals, ["app": app.app]) }
    family("push_gateway_missed_calls_total", .counter, "Missed calls announced to users, counted like calls_total")
    for app in apps {
      sample(app.missedByDeadline, ["app": app.app, "reason": "deadline"])
      sample(app.missedByEnd, ["app": app.app, "reason": "ended"])
    }
    family(
      "push_gateway_time_to_ring_seconds", .histogram,
      "Time from the commit of a call until a phone reported that it rings, counted like calls_total")
    for app in apps { sample(app.timeToRing, ["app": app.app]) }
    family("push_gateway_receipts_lost_total", .counter, "Expo tickets whose receipts did not come within 24 hours")
    for app in apps where app.app != DispatcherCounters.unknownApp {
      sample(snapshot.lostReceipts[app.app] ?? 0, ["app": app.app])
    }
  }

  mutating func write(outbox snapshot: MetricsSnapshot) {
    family("push_gateway_settlement_batch_size", .histogram, "Number of results written to the outbox at a time")
    sample(snapshot.counters.settlementBatches)
    family(
      "push_gateway_settlement_lag_seconds", .histogram,
      "Time from a provider's answer until it was written to the outbox")
    sample(snapshot.counters.settlementLag)
    family(
      "push_gateway_settlement_lost_total", .counter, "Results dropped because another replica had taken over the lease"
    )
    sample(snapshot.counters.lostLeases)
    family("push_gateway_postgres_round_trip_seconds", .histogram, "Time from a statement until its answer")
    for trip in OutboxCounters.RoundTrip.allCases {
      sample(snapshot.outbox.roundTrips[trip] ?? Histogram(.latency), ["kind": trip.rawValue])
    }
    family("push_gateway_postgres_reconnects_total", .counter, "Connections to Postgres reopened after a loss")
    sample(snapshot.outbox.reconnects)
    family(
      "push_gateway_reconciled_total", .counter,
      "Rows claimed for this replica that it did not know of, and gave up")
    sample(snapshot.counters.reconciled)
    family("push_gateway_forgotten_claims_total", .counter, "Claims that were given up because their answers were lost")
    sample(snapshot.counters.forgottenClaims)
    // Settlements are durable, so none is written again. Queries that use the name keep working.
    family("push_gateway_settled_again_total", .counter, "Always 0, and gone with the next major release")
    sample(0)
    family(
      "push_gateway_lease_lapses_total", .counter,
      "Number of times that no heartbeat was confirmed in time, so that nothing could be sent")
    sample(snapshot.counters.leaseLapses)
  }

  mutating func write(_ api: APICounters.Snapshot) {
    family("push_gateway_api_requests_total", .counter, "Requests to the HTTP API, by operation and HTTP status")
    for operation in APIOperation.allCases {
      for status in APICounters.statuses where status >= 300 || status == operation.success {
        // A request with a wrong method belongs to no operation, and is counted below.
        guard status != 405 else { continue }
        sample(
          api.requests(operation, status), ["operation": operation.rawValue, "status": String(status)])
      }
      sample(api.requests(operation, nil), ["operation": operation.rawValue, "status": "other"])
    }
    for status in [404, 405] {
      sample(api.requests(nil, status), ["operation": APICounters.noOperation, "status": String(status)])
    }
    family(
      "push_gateway_api_refusals_total", .counter,
      "Requests to the HTTP API that were refused because of their key, its rate or their address, by reason")
    for reason in APIRefusal.Reason.allCases {
      sample(api.refusals[reason] ?? 0, ["reason": reason.rawValue])
    }
    family(
      "push_gateway_api_refused_tokens_total", .counter,
      "Tokens for which a request to the path of another push server did nothing, although it was answered 200")
    for operation in APIOperation.allCases where operation.isOfOtherServer {
      sample(api.refusedTokens[operation] ?? 0, ["operation": operation.rawValue])
    }
  }

  // MARK: - Helpers

  private mutating func sample<Outcome>(
    _ counts: OutcomeCounts<Outcome>, _ word: (Outcome) -> String, of lane: LaneCounters
  ) {
    for kind in PushKind.allCases {
      for outcome in Outcome.allCases {
        for (index, reason) in lane.reasons.words.enumerated() {
          let count = counts[kind, outcome, reason: index]
          guard count > 0 || index == 0 else { continue }
          sample(
            count,
            [
              "app": lane.name.app, "provider": lane.name.channel, "kind": kind.word, "outcome": word(outcome),
              "reason": reason,
            ])
        }
      }
    }
  }

  private mutating func sample(
    _ name: String, _ help: String, _ lanes: [LaneCounters], _ histograms: (LaneCounters) -> [Histogram]
  ) {
    family(name, .histogram, help)
    for lane in lanes {
      for (kind, histogram) in zip(PushKind.allCases, histograms(lane)) {
        sample(histogram, ["app": lane.name.app, "provider": lane.name.channel, "kind": kind.word])
      }
    }
  }

  private mutating func sample(
    _ name: String, _ help: String, _ lanes: [LaneCounters], _ count: (LaneCounters) -> Int
  ) {
    family(name, .counter, help)
    for lane in lanes { sample(count(lane), ["app": lane.name.app, "provider": lane.name.channel]) }
  }
}

extension LaneCounters {
  /// Whether to leave out this lane, because it belongs to the unknown app and nothing was counted for it.
  fileprivate var isSilent: Bool {
    name.app == DispatcherCounters.unknownApp && invalidatedTokens == 0 && quarantinedTokens == 0
      && DeliveryOutcome.allCases.allSatisfy { deliveries.total(of: $0) == 0 }
  }
}

extension AppCounters {
  fileprivate var isSilent: Bool {
    app == DispatcherCounters.unknownApp && calls == 0 && quotaRefusals == 0 && missedByDeadline == 0
      && missedByEnd == 0 && timeToRing.count == 0
  }
}
